"""Left and right context of networks other than the reference networks."""

import re

import nnet3_descriptors
import numpy as np
import pytest
from graph_strategies import networks
from hypothesis import assume, given, settings
from nnet3_descriptors import NetworkError, Nnet, parse_config
from nnet3_graph import ContextError, compute_context


def network(descriptor, inputs="input-node name=input dim=1"):
    """A network with this descriptor as output."""
    config = (
        f"{inputs}\n"
        f"component name=c type=NoOpComponent dim=1\n"
        f"component-node name=c component=c input={descriptor}\n"
        f"output-node name=output input=c\n"
    )
    return parse_config(config, rng=np.random.default_rng(0))


IVECTOR = "input-node name=input dim=1\ninput-node name=ivector dim=1"


@pytest.mark.parametrize(
    ("nnet", "context"),
    [
        (network("input"), (0, 0)),
        (network("Sum(Offset(input, -3), Offset(input, 5))"), (3, 5)),
        (network("Sum(Offset(input, 1), Offset(input, 4))"), (0, 4)),
        (network("Sum(input, Round(input, 4))"), (3, 0)),
        (network("Switch(input, Offset(input, 2))"), (0, 2)),
        (network("Sum(input, IfDefined(Offset(input, -3)))"), (0, 0)),
        (network("Sum(input, ReplaceIndex(ivector, t, 0))", IVECTOR), (0, 0)),
        (network("Sum(input, Round(ivector, 10))", IVECTOR), (0, 0)),
        (network("Sum(Offset(input, -60), Offset(input, 100))"), (60, 100)),
        (network("Sum(Round(input, 50), Offset(input, 1))"), (49, 1)),
        (network("Sum(input, Round(ivector, 50))", IVECTOR), (0, 0)),
    ],
)
def test_context(nnet, context):
    """The context is the largest over positions within the modulus of the network."""
    assert compute_context(nnet) == context


def test_other_inputs():
    """Networks with other inputs have no context in Kaldi's sense."""
    nnet = network("side", "input-node name=side dim=1")

    with pytest.raises(ContextError, match=r"this one has inputs \['side'\], outputs \['output'\]"):
        compute_context(nnet)


def test_too_much_context():
    """A context for which a window of 640 frames is too small is not found."""
    with pytest.raises(ContextError, match="no output can be computed from a window of 640 frames"):
        compute_context(network("Sum(input, Offset(input, 5000))"))


@given(networks())
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_is_that_of_the_descriptors_package(nnet: Nnet) -> None:
    """Both methods of finding computable outputs lead to the same context."""
    assume(len(nnet.input_nodes) == 1)
    try:
        expected = nnet3_descriptors.compute_context(nnet)
    except NetworkError as error:
        with pytest.raises(ContextError, match=re.escape(str(error))):
            compute_context(nnet)
    else:
        assert compute_context(nnet) == expected
