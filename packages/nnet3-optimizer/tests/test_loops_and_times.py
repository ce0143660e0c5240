"""Computations in several segments, and derivatives limited to a range of times."""

import tracemalloc

import attrs
import numpy as np
import pytest
from brief_computations import before_and_after, brief, computation, draft
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import compile_computation, compile_looped, compile_segments, looped_requests
from nnet3_compiler.looped import extended_requests
from nnet3_computation import (
    AllocMatrixZeroed,
    CheckError,
    ComputationBuilder,
    NnetComputation,
    Propagate,
    StoreStats,
    peak_bytes,
    plan_memory,
)
from nnet3_computation.commands import GotoLabel
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import (
    EquivalenceError,
    OptimizeOptions,
    analyze,
    check_computation,
    optimize,
    verify_equivalent,
)
from nnet3_optimizer.passes.limit_derivative_times import limit_derivative_times
from optimizer_networks import examples
from small_networks import identity, network, request_for, stacked
from visible_results import run, same_results

LAYERS = (
    "affine Affine input-dim=8 output-dim=4",
    "tanh Tanh dim=4",
    "final Affine input-dim=4 output-dim=4",
)
RECURRENT = network(stacked(4, *LAYERS, splice="Append(input, IfDefined(Offset(tanh, -1)))"))
FEEDFORWARD = network(stacked(4, *LAYERS, splice="Append(input, Offset(input, -1))"))
LATE = parse_config(
    "input-node name=input dim=4\n"
    "output-node name=output input=Sum(input, IfDefined(Offset(input, -11)))"
)
DERIVS = ["input", "output"]


@pytest.mark.parametrize(
    ("nnet", "chunk", "options"),
    [
        (RECURRENT, 4, {}),
        (RECURRENT, 4, {"optimize": False}),
        (RECURRENT, 4, {"move_sizing_commands": False}),
        (FEEDFORWARD, 4, {}),
        *((LATE, chunk, {}) for chunk in (1, 2, 3)),
    ],
)
def test_loop_does_what_the_segments_do(nnet: Nnet, chunk: int, options: dict[str, bool]) -> None:
    """A loop over optimized segments is proven equal to the segments without optimization.

    It is valid however long the optimizer keeps matrices allocated, and contains a term that joins
    in after more chunks than are tried first.
    """
    requests, chosen = looped_requests(nnet, chunk), OptimizeOptions(**options)
    segments = compile_segments(nnet, extended_requests(requests, 20 if nnet is LATE else 7))

    loop = compile_looped(nnet, requests, optimize=lambda each: optimize(nnet, each, chosen))

    assert isinstance(loop.commands[-1], GotoLabel)
    check_computation(nnet, loop)
    verify_equivalent(nnet, segments, loop)
    verify_equivalent(nnet, loop, optimize(nnet, loop))
    assert plan_memory(loop).arena_bytes > 0


def test_loop_that_hands_over_the_wrong_matrix() -> None:
    """The proof finds faults that appear only in the second round."""
    requests = looped_requests(RECURRENT, 4)
    segments = compile_segments(RECURRENT, extended_requests(requests, 7))
    loop = compile_looped(RECURRENT, requests)
    table = loop.command_table.copy()
    swaps = np.flatnonzero(table[:, 0] == 4)
    assert len(swaps)

    broken = attrs.evolve(loop, command_table=np.delete(table, swaps, axis=0))

    with pytest.raises(CheckError, match="is allocated at the end, but not at the label"):
        check_computation(RECURRENT, broken)
    with pytest.raises(EquivalenceError, match="while it is not allocated"):
        verify_equivalent(RECURRENT, segments, broken)


def training(nnet: Nnet, last: int = 8) -> NnetComputation:
    """The computation of a training request over the times 0 to last - 1."""
    request = request_for(
        range(-1, last), range(last), 2, derivs=DERIVS, need_model_derivative=True
    )
    return compile_computation(nnet, request)


@pytest.mark.parametrize("nnet", [RECURRENT, FEEDFORWARD], ids=["recurrent", "feedforward"])
def test_limits_that_leave_everything_change_nothing(nnet: Nnet) -> None:
    """A range with the times of all derivatives gives an equivalent computation."""
    compiled = training(nnet)

    limited = optimize(nnet, compiled, OptimizeOptions(min_deriv_time=-50, max_deriv_time=50))

    verify_equivalent(nnet, compiled, limited)


@pytest.mark.parametrize("nnet", [RECURRENT, FEEDFORWARD], ids=["recurrent", "feedforward"])
@pytest.mark.parametrize(
    "options",
    [
        OptimizeOptions(min_deriv_time=3, verify=True),
        OptimizeOptions(max_deriv_time=4, verify=True),
        OptimizeOptions(max_deriv_time_relative=-3, verify=True),
        OptimizeOptions(min_deriv_time=2, max_deriv_time=5, verify=True),
        OptimizeOptions(min_deriv_time=2, max_deriv_time=5, optimize=False, verify=True),
    ],
    ids=["from", "to", "relative", "both", "alone"],
)
def test_input_derivatives_outside_of_the_range_are_zero(
    nnet: Nnet, options: OptimizeOptions
) -> None:
    """Input derivatives are zero outside of the range, and not all zero within."""
    compiled = training(nnet)
    low = -1 if options.min_deriv_time is None else options.min_deriv_time
    high = 7 if options.max_deriv_time is None else options.max_deriv_time
    if options.max_deriv_time_relative is not None:
        high = 7 + options.max_deriv_time_relative

    limited = optimize(nnet, compiled, options)

    check_computation(nnet, limited)
    assert peak_bytes(limited) < peak_bytes(compiled)
    found = run(nnet, limited)
    derivative = found["derivative", "input"]
    times = np.tile(np.arange(-1, 8), 2)
    inside = (times >= low) & (times <= high)
    assert not derivative[~inside].any()
    assert derivative[inside].any()
    # The forward part is unchanged.
    forward = run(nnet, compiled)["output", "output"]
    np.testing.assert_allclose(found["output", "output"], forward)


def test_limits_change_the_update() -> None:
    """The proof distinguishes a limited computation from the whole one."""
    compiled = training(RECURRENT)

    limited = optimize(RECURRENT, compiled, OptimizeOptions(min_deriv_time=4))

    with pytest.raises(EquivalenceError):
        verify_equivalent(RECURRENT, compiled, limited)
    assert not same_results(RECURRENT, compiled, limited)


def test_statistics_keep_their_memo() -> None:
    """Leaving out a Backprop keeps the memo that StoreStats uses."""
    nnet = network(stacked(4, "norm BatchNorm dim=4"))
    request = request_for(range(8), range(8), derivs=DERIVS, store_component_stats=True)

    limited = optimize(
        nnet, compile_computation(nnet, request), OptimizeOptions(min_deriv_time=9, verify=True)
    )

    check_computation(nnet, limited)
    names = [type(command).__name__ for command in limited.commands]
    assert "StoreStats" in names
    assert "BackpropNoModelUpdate" not in names


@given(
    examples(),
    st.none() | st.integers(-3, 8),
    st.none() | st.integers(0, 8),
    st.integers(0, 2),
    st.booleans(),
)
@settings(max_examples=3 * settings.default.max_examples // 5)
def test_limited_computations_pass_all_checks(
    example: tuple[Nnet, NnetComputation],
    low: int | None,
    length: int | None,
    level: int,
    keeps_zeros: bool,
) -> None:
    """For any range, each pass after the limit is checked and proven, and so is the result."""
    nnet, compiled = example
    high = None if length is None else (low or 0) + length
    options = OptimizeOptions(
        min_deriv_time=low,
        max_deriv_time=high,
        memory_compression_level=level,
        initialize_undefined=not keeps_zeros,
        verify=True,
    )

    check_computation(nnet, optimize(nnet, compiled, options))


def test_docstring_of_the_pass() -> None:
    """The docstring of the pass has its input and its result."""
    before, after = before_and_after(limit_derivative_times)

    limited = limit_derivative_times(draft(before), min_deriv_time=2)

    assert brief(limited) == brief(computation(after))


TWO_SEQUENCES = """
    m1 = 4 x 4, value of input: (0,0:1), (1,0:1)
    m2 = 4 x 4, deriv of input: (0,0:1), (1,0:1)
    m3 = 4 x 4, deriv of output: (0,0:1), (1,0:1)
    m4 = 1 x 4, deriv of ivector: (0,0)
    r0 = 0..4
    m1 = accept input
    m2 = zeros
    m4 = zeros
    provide output = m1
    segment end
    m3 = accept output
    m2 += 0.5 * m3
    m4 += sums(m3[r0])
    provide input = m2
    provide ivector = m4
"""


def test_rows_outside_between_rows_inside() -> None:
    """Of sequences one after the other, each has only its rows inside of the range."""
    limited = limit_derivative_times(draft(TWO_SEQUENCES), max_deriv_time=0)

    assert brief(limited).splitlines()[4:] == [
        "i0 = 0, -1, 2",
        "r0 = 0..4",
        "r1 = 0..1",
        "r2 = 2..3",
        "m1 = accept input",
        "m2 = zeros",
        "m4 = zeros",
        "provide output = m1",
        "segment end",
        "m3 = accept output",
        "m2(0:2, :) += 0.5 * m3(0:2, :)[i0]",
        "m4 += sums(m3(0:2, :)[r1])",
        "m4 += sums(m3(0:2, :)[r2])",
        "provide input = m2",
        "provide ivector = m4",
        "free m3",
    ]


def test_limits_hold_for_copies_alone() -> None:
    """A derivative that reaches the input by copies, without a Backprop, is limited, too."""
    nnet = identity(2)
    compiled = compile_computation(nnet, request_for(range(4), range(4), derivs=DERIVS))

    limited = optimize(nnet, compiled, OptimizeOptions(min_deriv_time=2))

    derivative = run(nnet, limited)["derivative", "input"]
    assert derivative.any(axis=1).tolist() == [False, False, True, True]


def test_memos_may_have_any_numbers() -> None:
    """The optimizer's memory does not grow with the number of a memo."""
    builder = ComputationBuilder()
    nnet = parse_config("component name=norm type=BatchNormComponent dim=4", RECURRENT)
    norm = nnet.component_names.index("norm")
    given, made = builder.matrix(2, 4), builder.matrix(2, 4)
    run = Propagate(component=norm, input=given, output=made, memo=2**31 - 1)
    builder.add(
        [
            AllocMatrixZeroed(matrix=given),
            AllocMatrixZeroed(matrix=made),
            run,
            StoreStats(component=norm, input=given, output=made, memo=2**31 - 1),
        ]
    )
    tracemalloc.start()
    try:
        optimize(nnet, builder.build(), OptimizeOptions(remove_dead_commands=False))
        analyze(nnet, builder.build()).feeds  # noqa: B018
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 10_000_000
