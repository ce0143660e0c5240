"""Loops, optimized or not, and chunks with a state give the results of segments."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from chunks_in_turn import chunks_in_turn
from hypothesis import given, note, settings
from hypothesis import strategies as st
from nnet3_compiler import (
    CompilationError,
    chunks_with_state,
    compile_looped,
    compile_segments,
    looped_requests,
)
from nnet3_compiler.looped import extended_requests
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet, parse_descriptor
from nnet3_optimizer import optimize
from nnet3_runtime_reference import ReferenceComputer
from small_networks import network, request_for, stacked

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


def layered(layers: Mapping[str, str], dim: int = 1, output: str | None = None) -> Nnet:
    """Linear layers, each with its input, and an output that is the last of them unless given."""
    lines = [f"input-node name=input dim={dim}"]
    for name, source in layers.items():
        input_dim = dim * len(parse_descriptor(source).parts)
        lines += [
            f"component name={name} type=LinearComponent input-dim={input_dim} output-dim={dim}",
            f"component-node name={name} component={name} input={source}",
        ]
    lines.append(f"output-node name=output input={output or list(layers)[-1]}")
    return network("\n".join(lines))


def chunks(size: int) -> list[ComputationRequest]:
    """The first three chunks of an input that begins with frame 0, without context."""
    frames = (range(begin, begin + size) for begin in range(0, 3 * size, size))
    return [request_for(each, each) for each in frames]


def assert_like_segments(
    nnet: Nnet,
    requests: list[ComputationRequest],
    rounds: int,
    is_optimized: bool = True,
    *,
    has_chunks: bool = True,
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
    in_turn = chunks_in_turn(nnet, requests, inputs) if has_chunks else None
    for number, arrays in enumerate(inputs):
        wanted = expected.forward(arrays)["output"]
        found = {"loop": looped.forward(arrays)} | ({"chunk": in_turn[number]} if in_turn else {})
        for what, outputs in found.items():
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


@pytest.mark.parametrize(("delay", "size"), [(2, 1), (4, 1), (4, 2), (8, 4), (3, 2)])
def test_values_that_later_rounds_have_in_other_columns(delay: int, size: int) -> None:
    """A state is another one if a later round reads it in other columns of the same matrix.

    Before the first term takes part, a splice has the same value twice, and the passes leave the
    value for later rounds in the first of the two places; afterwards only the second has it.
    """
    layers = {"a": "input", "b": f"Append(Sum(a, IfDefined(Offset(a, -{delay}))), a)"}

    assert_like_segments(layered(layers, dim=2), chunks(size), MANY_ROUNDS)


MERGED = {
    "output in the matrix of an input": stacked(
        4, "a Normalize dim=4", splice="Sum(Round(input, 3), IfDefined(Offset(input, -6)))"
    ),
    "state in one matrix": stacked(
        4, "a Sigmoid dim=4", splice="Sum(input, IfDefined(Offset(a, -2)))"
    ).replace("output input=a", "output input=Round(a, 3)"),
}


@pytest.mark.parametrize("config", MERGED.values(), ids=MERGED)
def test_matrices_that_were_merged(config: str) -> None:
    """A loop is found though a matrix stands for other rows than its debug info says."""
    assert_like_segments(network(config), looped_requests(network(config), 6), ROUNDS)


@pytest.mark.parametrize("is_optimized", [False, True])
@pytest.mark.parametrize("term", [FAILOVER, IF_DEFINED])
@pytest.mark.parametrize(("depth", "delay", "size"), [(0, 7, 1), (1, 7, 1), (3, 7, 1), (3, 3, 2)])
def test_terms_that_wait_for_others(
    depth: int, delay: int, size: int, term: str, is_optimized: bool
) -> None:
    """A term that takes part only once a chain of layers can be computed is not left out later."""
    layers, before = {}, "input"
    for number in range(depth):
        layers[f"b{number}"] = f"Offset({before}, -{delay})"
        before = f"b{number}"
    layers["last"] = term.format(last=before, delay=delay)

    assert_like_segments(layered(layers, dim=2), chunks(size), MANY_ROUNDS, is_optimized)


@pytest.mark.parametrize("is_optimized", [False, True])
def test_recurrences_whose_rows_begin_late(is_optimized: bool) -> None:
    """A term that waits for recurrences which begin at one frame in thirty takes part in the end.

    Five nodes over each other, each of which takes over its source at another residue of t, keep
    the term waiting for 144 frames, though no node reads further than one frame away.
    """
    modulus, before = 30, "input"
    layers = {}
    for number in range(5):
        name = f"n{number}"
        sources = [f"Offset({name}, -1)"] * modulus
        sources[modulus - 1 - number] = before
        layers[name] = f"Switch({', '.join(sources)})"
        before = name
    layers["last"] = f"Failover(Offset({before}, -1), input)"

    assert_like_segments(layered(layers), chunks(modulus), 12, is_optimized)


@pytest.mark.parametrize("is_optimized", [False, True])
def test_state_that_repeats_late(is_optimized: bool) -> None:
    """The largest number of segments is tried, though it is not twice the one before."""
    layers = {
        "a": "Sum(input, Offset(input, -3))",
        "b": "Sum(a, Offset(a, -9))",
        "c": "Failover(Offset(b, -14), input)",
    }

    assert_like_segments(layered(layers), chunks(1), MANY_ROUNDS, is_optimized)


FIXED = """
input-node name=input dim=1
component name=a type=LinearComponent input-dim=1 output-dim=1
component-node name=a component=a input=Failover(ReplaceIndex(input, t, 30), input)
output-node name=output input=a
"""


@pytest.mark.parametrize("is_optimized", [False, True])
def test_fixed_frame_that_comes_later(is_optimized: bool) -> None:
    """A loop begins after the chunk with the fixed frame that all later chunks read."""
    assert_like_segments(network(FIXED), chunks(2), MANY_ROUNDS, is_optimized, has_chunks=False)


@pytest.mark.parametrize("compiled", [compile_looped, chunks_with_state])
def test_chunks_between_multiples_of_the_modulus(
    compiled: Callable[[Nnet, Sequence[ComputationRequest]], object],
) -> None:
    """Chunks that a Switch would make unlike each other are refused."""
    nnet = network(FIXED.replace("Failover(ReplaceIndex(input, t, 30)", "Switch(Scale(2.0, input)"))
    with pytest.raises(
        CompilationError,
        match=r"the modulus of the network is 2, so chunks of 3 frames are not computed alike: "
        r"expected a multiple of 2 \(see looped_chunk_size\)",
    ):
        compiled(nnet, chunks(3))


@st.composite
def networks(draw: st.DrawFn) -> Nnet:
    """Layers over earlier ones, from behind, with terms that are left out at first."""
    layers: dict[str, str] = {}
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}"
        names = ["input", *layers]
        near = draw(st.sampled_from(names))
        far = draw(st.sampled_from([near, *names, name]))
        offset = f"Offset({far}, -{draw(st.integers(1, 6))})"
        own = [f"Offset({name}, -{draw(st.integers(1, 3))})"]
        forms = [
            f"Sum({near}, IfDefined({offset}))",
            f"Failover({offset}, {near})",
            f"Sum({near}, IfDefined(Round({offset}, 2)))",
            f"Switch({', '.join(draw(st.permutations([near, *own, *own])))})",
        ]
        if far != name:
            forms += [offset, f"Sum({near}, {offset})", f"Sum({offset}, Offset({near}, -12))"]
        form, beside = draw(st.sampled_from(forms)), draw(st.sampled_from(["", near, *names]))
        layers[name] = f"Append({form}, {beside})" if beside else form
    note(layers)
    return layered(layers, output=f"Failover({name}, input)")


@settings(max_examples=40)
@given(nnet=networks(), factor=st.sampled_from([1, 1, 1, 2, 3]), is_optimized=st.booleans())
def test_random_terms_that_wait(nnet: Nnet, factor: int, is_optimized: bool) -> None:
    """Networks whose layers wait for others give the outputs of their segments, round by round."""
    assert_like_segments(nnet, chunks(factor * nnet.modulus), MANY_ROUNDS, is_optimized)
