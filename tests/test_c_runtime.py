"""C programs of computations give Kaldi's results, and those of the definition."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import judge_random_c
import nnet3
import numpy as np
import pytest
from c_computer import COMPILER, STRICT, CComputer
from nnet3_conformance import judge_class, reference_cases
from nnet3_graph import compute_context
from nnet3_runtime_c import ConversionError
from nnet3_tables import read_table
from reference_cases import DIGITS_EXAMPLE
from tool_runs import run_tool

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here"),
    pytest.mark.skipif(sys.platform != "linux", reason="libraries are built as on Linux"),
]
LARGEST_DIFFERENCE = 5e-6
MODEL = DIGITS_EXAMPLE / "final.raw"
FRAMES = 20
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


def test_the_tool(tmp_path: Path) -> None:
    """A stream of the digits model gives what Model gives, and says the same digits."""
    done = run_tool("nnet3-to-c", "--frames=20", "--stream", MODEL, tmp_path / "digits.c")
    assert "digits.h: call 0: input input 44 x 23, output output 20 x 11; call 1" in done.stderr
    command = [str(COMPILER), *STRICT, "-O2", "-DNNET3_MAIN", "digits.c", "-o", "digits", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    model = nnet3.load(MODEL)
    left, right = compute_context(model.nnet)

    same = 0
    for _, rows in read_table(f"ark:{DIGITS_EXAMPLE}/test.feats.ark"):
        missing = -len(rows) % FRAMES
        padded = np.concatenate(
            [np.repeat(rows[:1], left, axis=0), rows, np.repeat(rows[-1:], right + missing, axis=0)]
        )
        found = subprocess.run(
            ["./digits"], cwd=tmp_path, input=padded.tobytes(), capture_output=True, check=True
        ).stdout
        outputs = np.frombuffer(found, np.float32).reshape(-1, 11)[: len(rows)]
        expected = model.compute(rows)
        np.testing.assert_allclose(outputs, expected, atol=1e-4)
        same += outputs.sum(axis=0).argmax() == expected.sum(axis=0).argmax()
    assert same == 40
