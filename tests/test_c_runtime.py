"""C programs of computations give Kaldi's results, and those of the definition."""

from __future__ import annotations

import functools
import os
import sys

import judge_random_c
import pytest
from c_computer import COMPILER, CComputer
from nnet3_conformance import judge_class, reference_cases
from nnet3_runtime_c import ConversionError

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here"),
    pytest.mark.skipif(sys.platform != "linux", reason="libraries are built as on Linux"),
]
LARGEST_DIFFERENCE = 5e-6
SEEDS = range(100, 100 + int(os.environ.get("C_SEEDS", "8")))


def test_conformance() -> None:
    """All cases pass, as compiled and as optimized; of training, the forward part counts."""
    quickly = functools.partial(CComputer, options=["-O0"])
    verdicts = [*judge_class(reference_cases(), quickly, unsupported=(ConversionError,))]

    assert len(verdicts) == 2 * 89
    assert [str(each) for each in verdicts if each.outcome != "passed"] == []
    assert max(each.differences.get("output", 0.0) for each in verdicts) < LARGEST_DIFFERENCE


@pytest.mark.parametrize("seed", SEEDS)
def test_random_computations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of random networks agree with the definition, without a word of the sanitizers."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")

    assert judge_random_c.judge(seed).problem == ""
