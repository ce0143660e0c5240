"""Loops that are optimized before they are closed give the results of their segments."""

import numpy as np
import pytest
from nnet3_compiler import compile_looped, compile_segments, looped_requests
from nnet3_compiler.looped import extended_requests
from nnet3_descriptors import parse_config
from nnet3_optimizer import optimize
from nnet3_runtime_reference import ReferenceComputer

ROUNDS = 8

NETWORK = """
input-node name=input dim=2
component name=affine type=LinearComponent input-dim=4 output-dim=2
component name=tanh type=TanhComponent dim=2
component-node name=affine component=affine input=Append(input, IfDefined(Offset(tanh, -{delay})))
component-node name=tanh component=tanh input=affine
output-node name=output input=Failover(Offset(affine, {ahead}), tanh)
"""


@pytest.mark.parametrize(
    ("ahead", "delay", "chunk"), [(1, 3, 2), (2, 3, 2), (3, 5, 2), (3, 5, 3), (1, 1, 4)]
)
def test_output_that_is_a_frame_ahead(ahead: int, delay: int, chunk: int) -> None:
    """A loop closes though a merge gave the output the debug info of another time."""
    nnet = parse_config(NETWORK.format(ahead=ahead, delay=delay), rng=np.random.default_rng(0))
    requests = looped_requests(nnet, chunk, extra_right_context=ahead)
    rounds = extended_requests(requests, ROUNDS)
    loop = compile_looped(nnet, requests, optimize=lambda c: optimize(nnet, c))
    looped = ReferenceComputer(nnet, loop)
    expected = ReferenceComputer(nnet, compile_segments(nnet, rounds))
    rng = np.random.default_rng(1)

    for request in rounds:
        inputs = {"input": rng.standard_normal((len(request.inputs[0].indexes), 2))}
        np.testing.assert_allclose(
            looped.forward(inputs)["output"],
            expected.forward(inputs)["output"],
            rtol=1e-12,
            atol=1e-12,
        )
