"""C programs of computations give Kaldi's results, and those of the definition."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import c_stream
import judge_random_c
import nnet3
import numpy as np
import pytest
from c_computer import COMPILER
from c_targets import CBLAS, TARGETS, Target
from nnet3_conformance import judge_class, reference_cases
from nnet3_runtime_c import ConversionError
from nnet3_tables import read_table
from nnet3_tools.models import exporting
from reference_cases import DIGITS_EXAMPLE, ROOT
from tool_runs import run_tool

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here"),
    pytest.mark.skipif(sys.platform != "linux", reason="libraries are built as on Linux"),
]
LARGEST_DIFFERENCE = 5e-6
MODEL = DIGITS_EXAMPLE / "final.raw"
FRAMES = 20
LEFT, RIGHT = 12, 12
SEEDS = range(100, 100 + int(os.environ.get("C_SEEDS", "4")))
IN_8_BITS = ("--stream", "--frames=20", "--int8",
             f"--features=ark:{DIGITS_EXAMPLE}/test.feats.ark")  # fmt: skip
TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_conformance(target: Target, tmp_path: Path) -> None:
    """All cases pass, as compiled and as optimized; of training, the forward part counts."""
    runtime = target.computer(tmp_path, target.quick)
    verdicts = [*judge_class(reference_cases(), runtime, unsupported=(ConversionError,))]

    assert len(verdicts) == 2 * 89
    assert [str(each) for each in verdicts if each.outcome != "passed"] == []
    assert max(each.differences.get("output", 0.0) for each in verdicts) < LARGEST_DIFFERENCE


@pytest.mark.parametrize("seed", SEEDS)
def test_random_computations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of random networks agree with the definition, without a word of the sanitizers."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")

    assert judge_random_c.judge(seed).problem == ""


def check_digits(compute: Callable[[list[np.ndarray]], bytes]) -> None:
    """Outputs for the digits are those of Model, and so are the words.

    Args:
        compute: Computes the outputs of utterances, each with the context at its ends and a whole
            number of chunks of FRAMES.
    """
    model = nnet3.load(MODEL)
    utterances = [rows for _, rows in read_table(f"ark:{DIGITS_EXAMPLE}/test.feats.ark")]
    missing = [-len(rows) % FRAMES for rows in utterances]
    padded = [
        np.pad(rows, ((LEFT, RIGHT + more), (0, 0)), mode="edge")
        for rows, more in zip(utterances, missing, strict=True)
    ]
    found = np.frombuffer(compute(padded), np.float32).reshape(-1, 11)
    for rows, more in zip(utterances, missing, strict=True):
        outputs, found = found[: len(rows)], found[len(rows) + more :]
        expected = model.compute(rows)
        np.testing.assert_allclose(outputs, expected, atol=1e-4)
        assert outputs.sum(axis=0).argmax() == expected.sum(axis=0).argmax()
    assert not len(found)


@pytest.mark.parametrize("target", [*TARGETS, CBLAS], ids=str)
def test_digits(target: Target, tmp_path: Path) -> None:
    """Optimized code for chunks, with weights in a file."""
    nnet3.export_c(MODEL, frames=FRAMES, name="digits", weights_in_source=False).write(tmp_path)
    program = target.build(tmp_path, "digits", "-O2")

    def compute(utterances: list[np.ndarray]) -> bytes:
        chunks = [
            rows[at : at + LEFT + FRAMES + RIGHT].tobytes()
            for rows in utterances
            for at in range(0, len(rows) - LEFT - RIGHT, FRAMES)
        ]
        return target.run(program, b"".join(chunks), "digits.weights")

    check_digits(compute)


def test_8_bits(tmp_path: Path) -> None:
    """The tool writes weights in 8 bits, and says how much outputs of a stream change."""
    weights = tmp_path / "digits.weights"
    done = run_tool("nnet3-to-c", f"--weights={weights}", *IN_8_BITS, MODEL, tmp_path / "digits.c")

    found = re.search(
        r"8 bits: ([\d,]+) of ([\d,]+) bytes of weights\. For ark:.*: [\d,]+ rows of output "
        r"differ by ([\d.]+)%, at most by .*; the largest value is in the same column in ([\d.]+)%",
        done.stderr,
    )
    assert found is not None
    size, whole, relative, same = (float(each.replace(",", "")) for each in found.groups())
    assert weights.stat().st_size == size < 0.5 * whole
    assert f"Wrote {tmp_path}/digits.c, with {tmp_path}/digits.h and {weights}: " in done.stderr
    assert 0 < relative < 2
    assert same > 99


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that does not compile is one error."""
    monkeypatch.setenv("CC", "false")

    done = run_tool("nnet3-to-c", *IN_8_BITS, MODEL, tmp_path / "digits.c")

    assert done.returncode == 255
    assert re.search(r"^nnet3-to-c: .*'\S*false' failed: .* exit status 1\.\Z", done.stderr.strip())


def test_large_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If compilers would be busy for long with the weights, the tool says what avoids that."""
    monkeypatch.setattr(exporting, "LARGE", 100_000)
    source = tmp_path / "net.c"

    inside = run_tool("nnet3-to-c", MODEL, source)
    outside = run_tool("nnet3-to-c", f"--weights={tmp_path}/weights", MODEL, source)

    assert "MB, mostly weights, which a compiler takes minutes for: --weights=FILE" in inside.stderr
    assert "--weights=FILE" not in outside.stderr


@pytest.mark.parametrize("tool", ["make", "cmake"])
def test_the_example(tool: str, tmp_path: Path) -> None:
    """The files of examples/c build a program of a stream."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    shutil.copytree(ROOT / "examples" / "c", tmp_path, dirs_exist_ok=True)
    first, *then = {
        "make": [["make", f"MODEL={MODEL}"]],
        "cmake": [["cmake", f"-DMODEL={MODEL}", "."], ["cmake", "--build", "."]],
    }[tool]
    for command in (first, *then):
        subprocess.run(command, cwd=tmp_path, env=os.environ | {"PATH": TOOLS}, check=True)

    def run(rows: np.ndarray) -> bytes:
        command = [tmp_path / "digits"]
        return subprocess.run(command, input=rows.tobytes(), stdout=-1, check=True).stdout

    check_digits(lambda utterances: b"".join(map(run, utterances)))


@pytest.mark.parametrize("network", c_stream.NETWORKS)
def test_a_long_stream(network: str, tmp_path: Path) -> None:
    """Nothing drifts from the streams of Model, and memory stays."""
    found = c_stream.compare(network, 5000, tmp_path)

    assert found.largest < 1e-4
    assert found.after == found.before
