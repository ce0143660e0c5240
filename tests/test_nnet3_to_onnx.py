"""The tool nnet3-to-onnx: its models compute Kaldi's outputs in ONNX Runtime."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kaldi_native_io
import numpy as np
import onnxruntime
import pytest
from kaldi_tables import assert_same_archive, read_archive
from nnet3_tools.models import nnet3_to_onnx
from reference_cases import DIGITS_EXAMPLE, DIGITS_REFERENCE, TOOLS_REFERENCE
from tool_runs import run_tool

TOOL = Path(sys.executable).with_name("nnet3-to-onnx")

TOLERANCE = 1e-4


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the tool within this process."""
    return run_tool("models.nnet3_to_onnx", *arguments)


def written(*arguments: str | Path) -> None:
    """Runs the tool, which must succeed."""
    done = run(*arguments)
    assert done.returncode == 0, done.stderr


def session_of(path: Path) -> onnxruntime.InferenceSession:
    """A model, ready to run."""
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def about(session: onnxruntime.InferenceSession) -> dict[str, int]:
    """The numbers in the metadata of a model."""
    pairs = session.get_modelmeta().custom_metadata_map.items()
    return {key.removeprefix("nnet3."): int(value) for key, value in pairs if value.isdigit()}


def chunks(session: onnxruntime.InferenceSession, features: np.ndarray) -> np.ndarray:
    """The input of all chunks of an utterance with repeated edges, (chunks, frames, dim)."""
    numbers = about(session)
    size, left, right = (
        numbers[name] for name in ("frames_per_chunk", "left_context", "right_context")
    )
    begins = range(0, len(features), size)
    times = np.array([np.arange(begin - left, begin + size + right) for begin in begins])
    return features[times.clip(0, len(features) - 1)]


def compute(
    session: onnxruntime.InferenceSession, features: np.ndarray, **others: np.ndarray
) -> np.ndarray:
    """The outputs of an utterance, all chunks together, (frames, dim)."""
    given = chunks(session, features)
    more = {name: np.repeat(rows[None, None], len(given), 0) for name, rows in others.items()}
    [outputs] = session.run(["output"], {"input": given, **more})
    rows = -(-len(features) // about(session)["frame_subsampling_factor"])
    return outputs.reshape(-1, outputs.shape[2])[:rows]


def test_digits(tmp_path: Path) -> None:
    """The posteriors of the digits network are Kaldi's, with chunks of another size, too."""
    features = read_archive(DIGITS_EXAMPLE / "test.feats.ark")
    expected = read_archive(DIGITS_REFERENCE / "test.output.ark")
    for frames in (50, 31):
        written(DIGITS_EXAMPLE / "final.raw", tmp_path / "digits.onnx", f"--frames={frames}")
        session = session_of(tmp_path / "digits.onnx")

        found = {key: compute(session, rows) for key, rows in features.items()}

        assert_same_archive(found, expected, TOLERANCE)


def test_digits_example(tmp_path: Path) -> None:
    """The tool as users start it writes a model with which the example recognises all 40 words."""
    command = [TOOL, DIGITS_EXAMPLE / "final.raw", tmp_path / "digits.onnx", "--frames=50"]
    subprocess.run(command, check=True)

    done = subprocess.run(
        [sys.executable, DIGITS_EXAMPLE / "recognise_onnx.py", tmp_path / "digits.onnx"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "40 of 40 right"


def test_ivectors(tmp_path: Path) -> None:
    """A model takes an i-vector for each utterance."""
    arguments = ["--frames=20", "--ivector", "--sequences=0"]
    written(TOOLS_REFERENCE / "tdnn-ivector.raw", tmp_path / "net.onnx", *arguments)
    session = session_of(tmp_path / "net.onnx")
    features = read_archive(TOOLS_REFERENCE / "feats5.ark")
    with kaldi_native_io.SequentialFloatVectorReader(
        f"ark:{TOOLS_REFERENCE / 'ivectors3.ark'}"
    ) as reader:
        ivectors = {key: np.array(vector) for key, vector in reader}

    found = {key: compute(session, rows, ivector=ivectors[key]) for key, rows in features.items()}

    assert_same_archive(found, read_archive(TOOLS_REFERENCE / "tdnn-ivector.utt.ark"), TOLERANCE)


def test_subsampling(tmp_path: Path) -> None:
    """A model with subsampling computes every third frame."""
    arguments = ["--frames=24", "--frame-subsampling-factor=3"]
    written(TOOLS_REFERENCE / "tdnnf-chain.raw", tmp_path / "net.onnx", *arguments)
    session = session_of(tmp_path / "net.onnx")
    features = read_archive(TOOLS_REFERENCE / "feats6.ark")

    found = {key: compute(session, rows) for key, rows in features.items()}

    expected = read_archive(TOOLS_REFERENCE / "tdnnf-chain.sub3.ark")
    scale = max(np.abs(rows).max() for rows in expected.values())
    relative = [{key: rows / scale for key, rows in each.items()} for each in (found, expected)]
    assert_same_archive(*relative, TOLERANCE)


def test_xvectors(tmp_path: Path) -> None:
    """An x-vector model gives one vector for all frames, for the given number of sequences."""
    features = read_archive(TOOLS_REFERENCE / "feats6.ark")
    path = TOOLS_REFERENCE / "xvector.whole.ark"
    with kaldi_native_io.SequentialFloatVectorReader(f"ark:{path}") as reader:
        expected = {key: np.array(vector) for key, vector in reader}
    for key, frames in list(features.items())[-2:]:
        options = [f"--frames={len(frames)}", "--xvector", "--sequences=2"]
        written(TOOLS_REFERENCE / "xvector-stats.raw", tmp_path / "net.onnx", *options)
        session = session_of(tmp_path / "net.onnx")

        [found] = session.run(["output"], {"input": np.stack([frames, frames])})

        assert found.shape == (2, 1, len(expected[key]))
        scale = np.abs(expected[key]).max()
        np.testing.assert_allclose(found[1, 0] / scale, expected[key] / scale, atol=TOLERANCE)


class Stream:
    """A stream in ONNX Runtime, of some utterances at a time."""

    def __init__(self, path: Path) -> None:
        """Loads both models."""
        self._start, self._again = session_of(nnet3_to_onnx.start_path(path)), session_of(path)

    def frames(self) -> Iterator[int]:
        """The number of frames for each call."""
        for session in (self._start, *[self._again] * 1000):
            [shape] = [each.shape for each in session.get_inputs() if each.name == "input"]
            yield shape[1]

    def run(self, features: np.ndarray, rows: int) -> np.ndarray:
        """The first rows of the outputs of utterances, (utterances, rows, dim).

        Args:
            features: (utterances, frames, dim).
            rows: The number of rows.
        """
        left = about(self._start)["left_context"]
        last = features.shape[1] - 1
        outputs: list[np.ndarray] = []
        state: dict[str, np.ndarray] = {}
        begin = -left
        for number, count in enumerate(self.frames()):
            session = self._again if number else self._start
            given = features[:, np.arange(begin, begin + count).clip(0, last)]
            names = [each.name for each in session.get_outputs()]
            found = dict(zip(names, session.run(names, {"input": given, **state}), strict=True))
            outputs.append(found.pop("output"))
            state = {name.removeprefix("next_"): value for name, value in found.items()}
            begin += count
            if sum(each.shape[1] for each in outputs) >= rows:
                return np.concatenate(outputs, axis=1)[:, :rows]
        raise AssertionError("no end")


@pytest.mark.parametrize(
    ("name", "chunk", "subsampling"), [("lstmp", 10, 1), ("lstmp", 21, 1), ("tdnnf-chain", 21, 3)]
)
def test_streams(name: str, chunk: int, subsampling: int, tmp_path: Path) -> None:
    """A stream of two utterances at a time computes, chunk by chunk, Kaldi's outputs."""
    arguments = [f"--frames={chunk}", f"--frame-subsampling-factor={subsampling}", "--stream"]
    written(TOOLS_REFERENCE / f"{name}.raw", tmp_path / "net.onnx", *arguments)
    stream = Stream(tmp_path / "net.onnx")
    sampled = f"s{subsampling}" if subsampling > 1 else ""
    expected = read_archive(TOOLS_REFERENCE / f"looped.{name}.c{chunk}{sampled}.ark")
    scale = max(np.abs(rows).max() for rows in expected.values())

    for key, frames in read_archive(TOOLS_REFERENCE / "feats6.ark").items():
        found = stream.run(np.stack([frames, frames]), len(expected[key]))
        for rows in found:
            np.testing.assert_allclose(rows / scale, expected[key] / scale, atol=TOLERANCE)


def test_chunks_of_streams_fit_the_network(tmp_path: Path) -> None:
    """The tool requires a multiple of the subsampling as the number of frames of a chunk."""
    arguments = ["--frames=20", "--frame-subsampling-factor=3", "--stream"]

    done = run(TOOLS_REFERENCE / "tdnnf-chain.raw", tmp_path / "net.onnx", *arguments)

    assert "Chunks have 21 frames" in done.stderr
    assert about(session_of(tmp_path / "net.onnx"))["frames_per_chunk"] == 21


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frames=20", "--ivector"], "has no input node 'ivector'"),
        (["--frames=20", "--stream", "--xvector"], "cannot be given together"),
        (["--frames=0"], "Invalid value for '--frames'"),
        ([], "Missing option '--frames'"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    """A failure prints a message, and writes nothing."""
    done = run(TOOLS_REFERENCE / "lstmp.raw", tmp_path / "net.onnx", *arguments)

    assert done.returncode == 255
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Without the package that makes models, the tool says how to install it."""
    usual = importlib.import_module

    def import_module(name: str) -> object:
        if name == "nnet3_runtime_onnx":
            raise ModuleNotFoundError("No module named 'onnx'", name="onnx")
        return usual(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    model, target = TOOLS_REFERENCE / "lstmp.raw", tmp_path / "net.onnx"
    monkeypatch.setattr(sys, "argv", ["nnet3-to-onnx", str(model), str(target), "--frames=20"])

    with pytest.raises(SystemExit) as stopped:
        nnet3_to_onnx.main()

    assert stopped.value.code == 255
    assert "onnx is not installed: pip install 'nnet3-tools[onnx]'" in capsys.readouterr().err
    assert not target.exists()
