"""Excessive requests are refused before they allocate memory; large ones work.

The system ends processes that exceed a limit on memory or time. These limits leave room for a slow
machine with other work; `benchmarks/limits.py` measures the times.
"""

import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from limits import DONE, REFUSED, measured

SECONDS = 10
"""Seconds of processor time. Refusals take less than two, and large requests less than three."""

MESSAGES = {
    "Offset(input, 1, 2147483647)": "RequestError: the request spans 30 values of t, 2147483648 of",
    "request for x = 2147483647": "RequestError: the request spans 1 values of t, 2147483648 of x",
    "request for t = -2147483647 to 2147483647": "RequestError: the request spans 4294967295 value",
    "from_range over 4294967294 frames": "RequestError: the rows of 'input': 4294967294 is above",
    "from_range of 2147483647 sequences": "RequestError: the rows of 'input': 214748364700 is abov",
    "StatisticsPooling over 2147000000 frames": (
        "ConfigError: line 2, column 1: StatisticsPoolingComponent: the frames of the window: "
        "2147000001 is above the limit of 100000 (Limits.offsets)"
    ),
    "StatisticsExtraction over 2000000000 frames": (
        "ConfigError: line 2, column 1: StatisticsExtractionComponent: the frames of a period: "
    ),
    "Tdnn with offsets 0 and 1000000001": "RequestError: the request spans 1000000003 values of t",
    "RepeatedAffine with 10^9 outputs": (
        "ConfigError: line 2, column 1: a dimension of the initial values, (250000000, 1): "
        "250000000 is above the limit of 10000000 (Limits.dim)"
    ),
    "BatchNorm with blocks of 10^9": "ConfigError: line 2, column 1: a dimension of the initial v",
    "FixedScale of 10^9": "ConfigError: line 2, column 1: a dimension of the initial values",
    "Const(1.0, 1000000000)": (
        "ConfigError: line 2, column 31: the dimension of node 'output': 1000000004 is above the "
        "limit of 10000000 (Limits.dim)"
    ),
    "doubled Append, 13 times in one descriptor": (
        "DescriptorSyntaxError: line 2, column 31: descriptors may have at most 100000 characters"
    ),
    "doubled Append, 28 nodes": "ConfigError: line 44, column 1: NoOpComponent: input_dim: 1677",
    "input of dimension 2147483647": (
        "ConfigError: line 1, column 1: the dimension of node 'input': 2147483647 is above"
    ),
    "100,000 nodes": "the number of nodes is above the limit of 50000 (Limits.nodes)",
    "attention over 2000000000 frames": (
        "ConfigError: line 2, column 1: RestrictedAttentionComponent: the frames that it looks at: "
    ),
    "container with 100,000 letters for nodes": (
        "SerializationError: not a valid 'nnet3.nnet': expected a list, got 'aaaa"
    ),
    "5,000 parts of a descriptor at each of 8,000 frames": (
        "RequestError: node 'output': the rows that its 8000 rows read: 40000000 is above the limit"
    ),
    "output at t = 1,000,000 of pooled sums of 1,000 frames": (
        "NotComputableError: cannot compute 1 of 2 rows of 'output'; the first needs, one after"
    ),
    "output of an LSTM at t = 200,000": "NotComputableError: cannot compute 1 of 2 rows of",
    "output at t = 200,000 of a recurrence without a first value": (
        "NotComputableError: cannot compute 2 of 2 rows of"
    ),
    "the same in the second of two sequences": "NotComputableError: cannot compute 2 of 2 rows of",
    "output at t = 51,712 of a recurrence through a DistributeComponent": (
        "NotComputableError: cannot compute 1 of 2 rows of"
    ),
    "51,712 frames of a recurrence, all but the first given": (
        "NotComputableError: cannot compute 1 of 1 rows of"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_within_bounds(name: str) -> None:
    """A process with ten seconds and 300 MB refuses an excessive request with a message."""
    _, _, what = measured(REFUSED[name], memory=300, cpu=SECONDS)

    assert MESSAGES[name] in what


@pytest.mark.parametrize("name", DONE)
def test_is_done_within_bounds(name: str) -> None:
    """A process with fifteen seconds and 600 MB computes a large request within the limits."""
    _, _, what = measured(DONE[name], memory=600, cpu=15)

    assert what == "done"
