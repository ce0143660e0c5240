"""Requests near the largest and smallest possible t and x."""

import numpy as np
import pytest
from nnet3_compiler import compile_computation, compile_looped
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet
from small_networks import network as network_of

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
    return network_of(
        f"input-node name=input dim=2\ncomponent name=c type={layer}\n"
        f"component-node name=c component=c input={source}\n"
        f"output-node name=output input={OUTPUTS[name]}\n"
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


@pytest.mark.parametrize("name", ["recurrence", "terms that wait"])
def test_loops_that_begin_at_the_first_time(name: str) -> None:
    """The computation of a loop is the same wherever it begins, also if terms wait for others."""
    nnet = network(name)

    def loop(first: int) -> NnetComputation:
        chunks = [range(start, start + 8) for start in range(first, first + 24, 8)]
        return compile_looped(nnet, [request(each, each, 1) for each in chunks])

    assert loop(-LAST).commands == loop(0).commands
