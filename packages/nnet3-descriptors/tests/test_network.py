"""Networks as values: construction, queries, and changes of values."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    InputNode,
    Limits,
    NetworkError,
    Nnet,
    OutputNode,
    parse_config,
    parse_descriptor,
    read_nnet,
    set_test_mode,
    unvectorize,
    use_limits,
    vectorize,
    write_nnet,
)
from nnet3_descriptors.components import TanhComponent
from nnet3_descriptors.structure import NetworkFingerprint
from nnet3_descriptors.values import is_frozen

NNET = parse_config(
    """
    input-node name=input dim=3
    component name=affine type=AffineComponent input-dim=6 output-dim=4
    component name=norm type=BatchNormComponent dim=4
    component name=linear type=LinearComponent input-dim=2 output-dim=5
    component-node name=affine component=affine input=Append(input, Offset(input, 1))
    component-node name=norm component=norm input=Round(affine, 2)
    dim-range-node name=part input-node=norm dim-offset=1 dim=2
    component-node name=linear component=linear input=Switch(part, part, part)
    output-node name=output input=linear
    """
)

INPUT = InputNode(name="input", dim=3)
TANH_INPUT = ComponentInputNode(name="tanh_input", descriptor=parse_descriptor("input"))
TANH = ComponentNode(name="tanh", component="tanh")
OUTPUT = OutputNode(name="output", descriptor=parse_descriptor("tanh"))


def make(*nodes: object, component_names: tuple[str, ...] = ("tanh",)) -> Nnet:
    """Returns a network of these nodes and a tanh component."""
    return Nnet(
        component_names=component_names,
        components=(TanhComponent(dim=3),),
        nodes=nodes,  # type: ignore[arg-type]
    )


def at_fault(*nodes: object) -> str:
    """The node at which the constructor finds a fault, and what it says."""
    with use_limits(Limits(dim=2**31)), pytest.raises(NetworkError) as caught:
        make(*nodes)
    return f"{caught.value.node}: {caught.value}"


def reading(text: str) -> ComponentInputNode:
    """The input of the tanh with another descriptor."""
    return attrs.evolve(TANH_INPUT, descriptor=parse_descriptor(text))


def test_lists_become_tuples() -> None:
    """The parts of a network may be in lists."""
    listed = Nnet(
        component_names=["tanh"],
        components=[TanhComponent(dim=3)],
        nodes=[INPUT, TANH_INPUT, TANH, OUTPUT],
    )
    assert listed == make(INPUT, TANH_INPUT, TANH, OUTPUT)
    assert hash(listed) == hash(make(INPUT, TANH_INPUT, TANH, OUTPUT))
    assert listed.node_dim("output") == 3


def unpickled(value: Any) -> Any:
    """A value as it arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301, bytes of our own


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, unpickled])
def test_copies_are_as_frozen(copied: Callable[[Any], Any]) -> None:
    """Nobody can write to the arrays of a copy, or of a network from another process."""
    fingerprint = NetworkFingerprint.of(NNET)
    assert len(fingerprint.nodes) == len(NNET.nodes)
    copy_of_fingerprint = copied(fingerprint)
    network = copied(NNET)

    assert network == NNET
    assert hash(network) == hash(NNET)
    assert copied(NNET.components[0]) == NNET.components[0]
    assert all(map(is_frozen, network.state_dict().values()))
    assert copy_of_fingerprint == fingerprint
    assert is_frozen(copy_of_fingerprint.nodes)


def test_dimensions() -> None:
    """Every kind of node has a dimension."""
    dims = {name: NNET.node_dim(name) for name in NNET.node_names}

    assert dims == {
        "input": 3,
        "affine_input": 6,
        "affine": 4,
        "norm_input": 4,
        "norm": 4,
        "part": 2,
        "linear_input": 2,
        "linear": 5,
        "output": 5,
    }


def test_names_and_numbers() -> None:
    """Nodes and components are found by name."""
    assert NNET.node_index("norm") == 4
    assert NNET.component_index("norm") == 1
    assert NNET.component("norm") is NNET.components[1]
    assert [node.name for node in NNET.input_nodes] == ["input"]
    assert [node.name for node in NNET.output_nodes] == ["output"]


def test_modulus() -> None:
    """The modulus is the least common multiple over all descriptors."""
    assert NNET.modulus == 6


def test_names_all_arrays() -> None:
    """Parameters and statistics are named by component and field, in order."""
    arrays = NNET.state_dict()

    assert {name: array.shape for name, array in arrays.items()} == {
        "affine.linear_params": (4, 6),
        "affine.bias_params": (4,),
        "norm.stats_mean": (4,),
        "norm.stats_var": (4,),
        "linear.params": (5, 2),
    }
    assert all(array.dtype == np.float32 for array in arrays.values())
    assert not any(array.flags.writeable for array in arrays.values())


def test_with_state_dict_replaces_what_is_named() -> None:
    """New values are converted to float32; others stay."""
    nnet = NNET.with_state_dict({"norm.stats_mean": [1, 2, 3, 4]})

    assert nnet.state_dict()["norm.stats_mean"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert nnet.component("affine") is NNET.component("affine")
    assert nnet.with_state_dict(NNET.state_dict()) == NNET


def test_order() -> None:
    """Components are in order; each has its matrices row by row, then the bias."""
    values = np.arange(NNET.num_parameters, dtype=np.float32)

    nnet = unvectorize(NNET, values)

    assert NNET.num_parameters == 4 * 6 + 4 + 5 * 2
    assert nnet.state_dict()["affine.linear_params"][1].tolist() == [6, 7, 8, 9, 10, 11]
    assert nnet.state_dict()["affine.bias_params"].tolist() == [24, 25, 26, 27]
    assert nnet.state_dict()["linear.params"][-1].tolist() == [36, 37]
    assert (vectorize(nnet) == values).all()


def test_files_are_read_as_they_are() -> None:
    """A network with NaN, as training that diverged leaves it, is read and written."""
    affine = NNET.component("affine")
    broken = affine.replace(bias_params=np.full(4, np.nan, np.float32))
    file = io.BytesIO()
    write_nnet(NNET.with_components({"affine": broken}), file)
    file.seek(0)

    assert np.isnan(read_nnet(file).state_dict()["affine.bias_params"]).all()


def test_no_parameters() -> None:
    """A network without parameters gives an empty vector."""
    nnet = make(INPUT, TANH_INPUT, TANH, OUTPUT)

    assert vectorize(nnet).shape == (0,)
    assert unvectorize(nnet, []) == nnet


def test_test_mode_is_switched_where_there_is_one() -> None:
    """Only the mode of batch-norms changes, to test mode and back."""
    tested = set_test_mode(NNET)

    assert tested.component("norm").test_mode is True
    assert tested.component("affine") is NNET.component("affine")
    assert set_test_mode(tested, on=False) == NNET


def test_repr() -> None:
    """The repr of a network shows its size, not its arrays."""
    assert repr(NNET) == "<Nnet: 9 nodes, 3 components, 38 parameters>"


def test_info() -> None:
    """Info begins with the context, where it is given."""
    lines = NNET.info((1, 2)).splitlines()

    assert lines[:5] == [
        "left-context: 1",
        "right-context: 2",
        "num-parameters: 38",
        "modulus: 6",
        "input-node name=input dim=3",
    ]
    assert NNET.info().splitlines() == lines[2:]
    assert lines[-1].startswith("component name=linear type=LinearComponent, input-dim=2, ")
