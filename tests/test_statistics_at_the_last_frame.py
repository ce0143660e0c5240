"""Statistics whose window ends beyond the largest t, in segments and in recurrences.

A request that ends some frames before the largest 32-bit t is either refused, or computed like the
same request around t = 0, for which the reference runtime gives the results.
"""

import numpy as np
import pytest
from nnet3_compiler import compile_segments
from nnet3_computation import ComputationRequest, NnetComputation, RequestError
from nnet3_descriptors import Nnet, parse_config
from nnet3_descriptors.indexes import INT32_MAX
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_reference import ReferenceComputer
from small_networks import request_for

FRAMES = 6
"""Frames of a segment."""
PERIOD = 2
WINDOW = 4
"""Frames from a frame to the end of its window."""

POOLED = """
input-node name=input dim=2
component name=sum type=NoOpComponent dim=2
component name=extract type=StatisticsExtractionComponent input-dim=2 input-period=1 output-period=2
component name=pool type=StatisticsPoolingComponent input-dim=5 input-period=2 left-context=4 \
right-context=4 num-log-count-features=0
component-node name=sum component=sum input={}
component-node name=extract component=extract input=sum
component-node name=pool component=pool input=extract
output-node name=output input=Append(sum, Round(pool, 2))
dim-range-node name=mean input-node=pool dim-offset=0 dim=2
"""
FEEDS = {
    "forward": "input",
    "recurrence": "Sum(input, IfDefined(Offset(Round(mean, 2), -8)))",
}


def requests(first: int, segments: int) -> list[ComputationRequest]:
    """Requests for consecutive segments; each asks for all of its own frames."""
    starts = range(first, first + segments * FRAMES, FRAMES)
    return [request_for(range(t, t + FRAMES), range(t, t + FRAMES)) for t in starts]


def outputs(
    computer: NnetComputer | ReferenceComputer, computation: NnetComputation, segments: int
) -> list[np.ndarray]:
    """The outputs of each segment for random inputs, which are the same in each call."""
    rng = np.random.default_rng(0)
    return [
        computer.forward({"input": rng.standard_normal((FRAMES, 2)).astype(np.float32)})["output"]
        for _ in range(segments)
    ]


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("feed", FEEDS)
def test_statistics_at_the_last_frame(feed: str, segments: int) -> None:
    """Only windows that end beyond the largest t cause errors; else outputs are as at t = 0."""
    nnet: Nnet = parse_config(POOLED.format(FEEDS[feed]))
    plain = compile_segments(nnet, requests(0, segments))
    expected = outputs(ReferenceComputer(nnet, plain), plain, segments)
    refused = []
    for left in range(1, 2 * (WINDOW + PERIOD)):
        # The last segment ends `left` frames before the largest t.
        first = INT32_MAX - left - segments * FRAMES + 1
        first -= first % PERIOD
        try:
            computation = compile_segments(nnet, requests(first, segments))
        except RequestError:
            refused.append(left)
            continue
        for computer in (
            ReferenceComputer(nnet, computation),
            NnetComputer(nnet, optimize(nnet, computation)),
        ):
            found = outputs(computer, computation, segments)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert refused == list(range(1, len(refused) + 1))
    assert len(refused) <= WINDOW + PERIOD
