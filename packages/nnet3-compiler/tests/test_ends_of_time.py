"""Requests near the largest and smallest possible t and x."""

import numpy as np
import pytest
from nnet3_compiler import CompilationError, compile_computation, compile_looped
from nnet3_compiler.looped import extended_requests
from nnet3_computation import ComputationRequest, IoSpecification, RequestError
from nnet3_descriptors import Nnet, parse_config

LAST = 2**31 - 1
LAYERS = {
    "time offsets": "TdnnComponent input-dim=2 output-dim=2 time-offsets=-2,0,3",
    "statistics": "StatisticsExtractionComponent input-dim=2 output-period=8",
}
SOURCES = {
    "recurrence": "Sum(input, IfDefined(Offset(c, -3)))",
    "terms that wait": "Offset(input, -9)",
}
OFFSETS = {
    "time offsets": "Offset(c, 0)",
    "statistics": "Round(c, 8)",
    "Offset in t": "Sum(Offset(input, -2), Offset(input, 3))",
    "Offset in x": "Sum(Offset(input, 0, -2), Offset(input, 0, 3))",
    "recurrence": "c",
}
OUTPUTS = {**OFFSETS, "terms that wait": "Failover(Offset(c, -9), input)"}


def network(name: str) -> Nnet:
    """A network that reads 2 frames (or values of x) back and 3 ahead, or whole periods of 8."""
    layer = LAYERS.get(name, "NoOpComponent dim=2")
    source = SOURCES.get(name, "input")
    return parse_config(
        f"input-node name=input dim=2\ncomponent name=c type={layer}\n"
        f"component-node name=c component=c input={source}\n"
        f"output-node name=output input={OUTPUTS[name]}\n",
        rng=np.random.default_rng(0),
    )


def request(inputs: range, outputs: range, column: int) -> ComputationRequest:
    """A request for values of t (column 1) or x (column 2) of two sequences, all else being 0."""

    def rows(name: str, values: range) -> IoSpecification:
        indexes = np.zeros((2, len(values), 3), dtype=np.int64)
        indexes[1, :, 0] = 1
        indexes[:, :, column] = values
        return IoSpecification(name=name, indexes=indexes.reshape(-1, 3))

    return ComputationRequest(inputs=[rows("input", inputs)], outputs=[rows("output", outputs)])


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("shift", [LAST - 31, -LAST + 7])
def test_just_within(name: str, shift: int) -> None:
    """With inputs up to the last possible t or x, the computation is the same as near 0."""
    nnet = network(name)
    column = 2 if name == "Offset in x" else 1
    outputs = range(9, 10) if name == "statistics" else range(2, 29)
    near_0, at_the_end = (
        compile_computation(
            nnet,
            request(
                range(shift, shift + 32),
                range(shift + outputs.start, shift + outputs.stop),
                column,
            ),
        )
        for shift in (0, shift)
    )

    assert at_the_end.commands == near_0.commands
    assert np.array_equal(at_the_end.submatrices, near_0.submatrices)


@pytest.mark.parametrize(
    ("name", "first", "far"),
    [
        ("time offsets", LAST - 2, "t = 2147483650"),
        ("time offsets", -LAST + 1, "t = -2147483648"),
        ("statistics", -LAST, "t = -2147483648"),
        ("Offset in t", LAST - 2, "t = 2147483650"),
        ("Offset in t", -LAST + 1, "t = -2147483648"),
        ("Offset in x", LAST - 2, "x = 2147483650"),
        ("Offset in x", -LAST + 1, "x = -2147483648"),
    ],
)
def test_beyond(name: str, first: int, far: str) -> None:
    """Outputs that need an impossible t or x are refused with its value and the range."""
    column = 2 if name == "Offset in x" else 1
    inputs = range(LAST - 31, LAST + 1) if first > 0 else range(-LAST, -LAST + 32)

    with pytest.raises(RequestError) as caught:
        compile_computation(network(name), request(inputs, range(first, first + 3), column))

    assert str(caught.value) == (
        f"the outputs need rows as far as {far}; expected {far[0]} from {-LAST} to {LAST}"
    )


def test_loops_that_leave_the_range() -> None:
    """A further chunk beyond the last possible t is refused, with the name of its input."""
    nnet = network("recurrence")
    requests = tuple(
        request(range(start, start + 8), range(start, start + 8), 1)
        for start in range(LAST - 32, LAST - 9, 8)
    )

    assert len(extended_requests(requests, 4)) == 4
    with pytest.raises(CompilationError) as caught:
        compile_looped(nnet, requests)
    assert str(caught.value) == (
        f"'input' of a further chunk of the looped computation reads t = {LAST + 7}; "
        f"expected t from {-LAST} to {LAST}"
    )


@pytest.mark.parametrize("name", ["recurrence", "terms that wait"])
def test_loops_that_begin_at_the_first_time(name: str) -> None:
    """The computation of a loop is the same wherever it begins, also if terms wait for others."""
    nnet = network(name)
    early = tuple(
        request(range(start, start + 8), range(start, start + 8), 1)
        for start in range(-LAST, -LAST + 24, 8)
    )
    near_0 = tuple(
        request(range(start, start + 8), range(start, start + 8), 1) for start in range(0, 24, 8)
    )

    assert compile_looped(nnet, early).commands == compile_looped(nnet, near_0).commands
