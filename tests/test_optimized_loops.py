"""Loops, optimized or not, and chunks with a state give the results of segments."""

import numpy as np
import pytest
from chunks_in_turn import chunks_in_turn
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import compile_looped, compile_segments, looped_requests
from nnet3_compiler.looped import extended_requests
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_optimizer import optimize
from nnet3_runtime_reference import ReferenceComputer

ROUNDS = 8
MANY_ROUNDS = 40

NETWORK = """
input-node name=input dim=2
component name=affine type=LinearComponent input-dim=4 output-dim=2
component name=tanh type=TanhComponent dim=2
component-node name=affine component=affine input=Append(input, IfDefined(Offset(tanh, -{delay})))
component-node name=tanh component=tanh input=affine
output-node name=output input=Failover(Offset(affine, {ahead}), tanh)
"""

ONE_MATRIX = """
input-node name=input dim=3
component name=a type=AffineComponent input-dim=3 output-dim=2
component name=b type=LinearComponent input-dim=2 output-dim=2
component name=c type=AffineComponent input-dim=3 output-dim=4
component name=d type=AffineComponent input-dim=9 output-dim=3
component name=e type=RectifiedLinearComponent dim=3
component name=f type=LinearComponent input-dim=3 output-dim=2
component-node name=a component=a input=input
component-node name=b component=b input=a
component-node name=c component=c input=input
component-node name=d component=d input=Append({own}, Failover(Offset(a, -7), b), c)
component-node name=e component=e input=d
component-node name=f component=f input=e
output-node name=output input=f
""".format(own="IfDefined(Offset(e, -3))")

FAILOVER = "Failover(Offset({last}, -{delay}), input)"
IF_DEFINED = "Sum(input, IfDefined(Offset({last}, -{delay})))"


def network(config: str) -> Nnet:
    """A network with random parameters."""
    return parse_config(config, rng=np.random.default_rng(0))


def chunks(size: int) -> list[ComputationRequest]:
    """The first three chunks of an input that begins with frame 0, without context."""
    return [
        ComputationRequest(
            inputs=[IoSpecification.from_range("input", begin, begin + size)],
            outputs=[IoSpecification.from_range("output", begin, begin + size)],
        )
        for begin in range(0, 3 * size, size)
    ]


def assert_like_segments(
    nnet: Nnet, requests: list[ComputationRequest], rounds: int, is_optimized: bool = True
) -> None:
    """Runs a loop, chunks that hand on their state, and as many segments on the same inputs."""
    segments = extended_requests(requests, rounds)
    rng = np.random.default_rng(1)
    inputs = [
        {io.name: rng.standard_normal((len(io.indexes), nnet.node_dim(io.name)))}
        for request in segments
        for io in request.inputs
    ]
    loop = compile_looped(
        nnet, requests, optimize=(lambda c: optimize(nnet, c)) if is_optimized else None
    )
    looped = ReferenceComputer(nnet, loop)
    expected = ReferenceComputer(nnet, compile_segments(nnet, segments))
    in_turn = chunks_in_turn(nnet, requests, inputs)
    for number, arrays in enumerate(inputs):
        wanted = expected.forward(arrays)["output"]
        for what, outputs in (("loop", looped.forward(arrays)), ("chunk", in_turn[number])):
            np.testing.assert_allclose(
                outputs["output"], wanted, rtol=1e-12, atol=1e-12, err_msg=f"{what}, round {number}"
            )


@pytest.mark.parametrize(
    ("ahead", "delay", "chunk"), [(1, 3, 2), (2, 3, 2), (3, 5, 2), (3, 5, 3), (1, 1, 4)]
)
def test_output_that_is_a_frame_ahead(ahead: int, delay: int, chunk: int) -> None:
    """A loop closes though a merge gave the output the debug info of another time."""
    nnet = network(NETWORK.format(ahead=ahead, delay=delay))

    assert_like_segments(nnet, looped_requests(nnet, chunk, extra_right_context=ahead), ROUNDS)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_two_states_in_one_matrix(size: int) -> None:
    """A state that still grows is no loop, though passes put it beside another in one matrix."""
    assert_like_segments(network(ONE_MATRIX), chunks(size), ROUNDS + 7)


@pytest.mark.parametrize("is_optimized", [False, True])
@pytest.mark.parametrize("term", [FAILOVER, IF_DEFINED])
@pytest.mark.parametrize(("depth", "delay", "size"), [(0, 7, 1), (1, 7, 1), (3, 7, 1), (3, 3, 2)])
def test_terms_that_wait_for_others(
    depth: int, delay: int, size: int, term: str, is_optimized: bool
) -> None:
    """A term that takes part only once a chain of layers can be computed is not left out later."""
    names = ["input", *(f"b{number}" for number in range(depth))]
    lines = ["input-node name=input dim=2"]
    for number, before in enumerate(names[:-1]):
        lines += [
            f"component name=b{number} type=LinearComponent input-dim=2 output-dim=2",
            f"component-node name=b{number} component=b{number} input=Offset({before}, -{delay})",
        ]
    lines += [
        "component name=last type=LinearComponent input-dim=2 output-dim=2",
        f"component-node name=last component=last input={term.format(last=names[-1], delay=delay)}",
        "output-node name=output input=last",
    ]

    assert_like_segments(network("\n".join(lines)), chunks(size), MANY_ROUNDS, is_optimized)


@st.composite
def networks(draw: st.DrawFn) -> str:
    """Layers over earlier ones, from behind, with terms that are left out at first."""
    lines, names = ["input-node name=input dim=1"], ["input"]
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}"
        near = draw(st.sampled_from(names))
        far = draw(st.sampled_from([*names, name]))
        offset = f"Offset({far}, -{draw(st.integers(1, 6))})"
        forms = [f"Sum({near}, IfDefined({offset}))", f"Failover({offset}, {near})"]
        if far != name:
            forms += [offset, f"Sum({near}, {offset})"]
        lines += [
            f"component name={name} type=LinearComponent input-dim=1 output-dim=1",
            f"component-node name={name} component={name} input={draw(st.sampled_from(forms))}",
        ]
        names.append(name)
    lines.append(f"output-node name=output input=Failover({names[-1]}, input)")
    return "\n".join(lines)


@settings(max_examples=40, deadline=None)
@given(config=networks(), size=st.integers(1, 3), is_optimized=st.booleans())
def test_random_terms_that_wait(config: str, size: int, is_optimized: bool) -> None:
    """Networks whose layers wait for others give the outputs of their segments, round by round."""
    assert_like_segments(network(config), chunks(size), MANY_ROUNDS, is_optimized)
