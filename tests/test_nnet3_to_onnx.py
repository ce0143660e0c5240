"""The tool nnet3-to-onnx: its models compute Kaldi's outputs in ONNX Runtime."""

from __future__ import annotations

import functools
import importlib
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from kaldi_tables import assert_same_archive, read_archive, read_vectors
from nnet3 import Model
from nnet3_descriptors import parse_config, read_nnet, write_nnet
from nnet3_graph import NotComputableError
from nnet3_tools.models.exporting import nnet3_to_onnx, start_path
from other_processes import printed_by, printed_by_python
from reference_cases import DIGITS_EXAMPLE, DIGITS_REFERENCE, TOOLS_REFERENCE
from speech_folders import make_xvector_folder
from test_reference_loops import CASES, case_file
from tool_runs import run_tool

DRIVER = runpy.run_path(str(DIGITS_EXAMPLE / "recognise_onnx.py"))
"""The code that users copy, which knows the model alone."""

about, compute, compute_stream = (DRIVER[name] for name in ("numbers", "compute", "compute_stream"))

TOOL = Path(sys.executable).with_name("nnet3-to-onnx")

TOLERANCE = 1e-4


run = functools.partial(run_tool, "nnet3-to-onnx")
written = functools.partial(run, expected=0)


def session_of(path: Path) -> onnxruntime.InferenceSession:
    """A model, ready to run."""
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def stream_of(path: Path) -> list[onnxruntime.InferenceSession]:
    """The models of a stream, ready to run."""
    return [session_of(start_path(path)), session_of(path)]


def test_digits(tmp_path: Path) -> None:
    """The posteriors of the digits network are Kaldi's, with chunks of another size, too."""
    features = read_archive(DIGITS_EXAMPLE / "test.feats.ark")
    expected = read_archive(DIGITS_REFERENCE / "test.output.ark")
    for frames in (50, 31):
        written(DIGITS_EXAMPLE / "final.raw", tmp_path / "digits.onnx", f"--frames={frames}")
        session = session_of(tmp_path / "digits.onnx")

        found = {key: compute(session, rows) for key, rows in features.items()}

        assert_same_archive(found, expected, TOLERANCE)


def test_standard_output_and_commands(tmp_path: Path) -> None:
    """A model can be written to standard output, and to a command."""
    written(DIGITS_EXAMPLE / "final.raw", f"| cat > {tmp_path / 'digits.onnx'}")
    with (tmp_path / "shown.onnx").open("wb") as shown:
        subprocess.run([TOOL, DIGITS_EXAMPLE / "final.raw", "-"], stdout=shown, check=True)

    content = (tmp_path / "digits.onnx").read_bytes()
    assert content == (tmp_path / "shown.onnx").read_bytes()
    assert onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def test_digits_example(tmp_path: Path) -> None:
    """The tool as users start it writes a model with which the example recognises all 40 words."""
    model = tmp_path / "digits.onnx"
    printed_by([TOOL, DIGITS_EXAMPLE / "final.raw", model, "--frames=50"])

    printed = printed_by_python(DIGITS_EXAMPLE / "recognise_onnx.py", model)

    assert printed.splitlines()[-1] == "40 of 40 right"


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ([], "expected one model without state"),
        (["digits.onnx"], "expected one model without state"),
        (["digits.start.onnx"], "expected one model without state"),
        (["digits.onnx", "digits.start.onnx"], "first NAME.start.onnx"),
        (["chain.onnx"], "23 columns in, 11 out and no i-vector; found 6, 11, 0"),
    ],
)
def test_models_that_the_example_refuses(
    models: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example says in a sentence which models it expects."""
    monkeypatch.chdir(tmp_path)
    if "chain.onnx" in models:
        written(TOOLS_REFERENCE / "tdnnf-chain.raw", tmp_path / "chain.onnx", "--frames=24")
    elif models:
        written(DIGITS_EXAMPLE / "final.raw", tmp_path / "digits.onnx", "--frames=20", "--stream")
    monkeypatch.setattr("sys.argv", ["recognise_onnx.py", *models])

    with pytest.raises(SystemExit, match=re.escape(problem)):
        DRIVER["main"]()


def test_ivectors(tmp_path: Path) -> None:
    """A model takes an i-vector for each utterance."""
    arguments = ["--frames=20", "--ivector", "--sequences=0"]
    written(TOOLS_REFERENCE / "tdnn-ivector.raw", tmp_path / "net.onnx", *arguments)
    session = session_of(tmp_path / "net.onnx")
    features = read_archive(TOOLS_REFERENCE / "feats5.ark")
    ivectors = read_vectors(TOOLS_REFERENCE / "ivectors3.ark")

    found = {key: compute(session, rows, ivectors[key][None]) for key, rows in features.items()}

    assert_same_archive(found, read_archive(TOOLS_REFERENCE / "tdnn-ivector.utt.ark"), TOLERANCE)


@pytest.mark.parametrize(("frames", "chunk"), [(24, 24), (50, 51)])
def test_subsampling(frames: int, chunk: int, tmp_path: Path) -> None:
    """A model computes every third frame, in chunks of a multiple of three frames."""
    arguments = [f"--frames={frames}", "--frame-subsampling-factor=3"]
    done = run(TOOLS_REFERENCE / "tdnnf-chain.raw", tmp_path / "net.onnx", *arguments)
    session = session_of(tmp_path / "net.onnx")
    features = read_archive(TOOLS_REFERENCE / "feats6.ark")

    found = {key: compute(session, rows) for key, rows in features.items()}

    assert about(session)["frames_per_chunk"] == chunk
    model = TOOLS_REFERENCE / "tdnnf-chain.raw"
    to_c = run_tool("nnet3-to-c", *arguments, model, tmp_path / "net.c")
    for log in done.stderr, to_c.stderr:
        assert (f"Chunks have {chunk} frames" in log) == (chunk != frames)
    expected = read_archive(TOOLS_REFERENCE / "tdnnf-chain.sub3.ark")
    assert_same_archive(found, expected, TOLERANCE, is_relative=True)


def test_a_folder_says_the_subsampling(tmp_path: Path) -> None:
    """Chunks of a model's folder have a row for as many frames as the folder says."""
    (tmp_path / "model").mkdir()
    shutil.copy(TOOLS_REFERENCE / "tdnnf-chain.raw", tmp_path / "model" / "final.raw")
    (tmp_path / "model" / "frame_subsampling_factor").write_text("3\n")
    for options, factor in ((["--frames=24"], 3), (["--frames=24", "--stream"], 3), ([], 1)):
        written(tmp_path / "model", tmp_path / "net.onnx", *options)

        assert about(session_of(tmp_path / "net.onnx"))["frame_subsampling_factor"] == factor

    done = run_tool("nnet3-to-c", "--frames=24", tmp_path / "model", tmp_path / "net.c")
    assert "output output 8 x" in done.stderr


def test_a_folder_says_the_xvector(tmp_path: Path) -> None:
    """The embedding that extract.config names is the output of the model of a folder."""
    make_xvector_folder(tmp_path / "model")

    written(tmp_path / "model", tmp_path / "net.onnx", "--xvector")

    assert about(session_of(tmp_path / "net.onnx"))["output_dim"] == 6


def saved(lines: str, path: Path) -> Model:
    """Writes the network of config lines, and makes it ready to run."""
    nnet = parse_config(lines, rng=np.random.default_rng(0))
    write_nnet(nnet, path)
    return Model(nnet)


@pytest.mark.parametrize(
    ("descriptor", "step", "frames", "chunk"),
    [
        ("Sum(Round(input, 3), input)", 1, 50, 51),
        ("Sum(Round(input, 3), input)", 2, 50, 54),
        ("Failover(Offset(input, 1), input)", 3, 12, 12),
    ],
    ids=["modulus", "modulus and subsampling", "optional context"],
)
def test_chunks_are_those_of_compute(
    descriptor: str, step: int, frames: int, chunk: int, tmp_path: Path
) -> None:
    """Chunks begin where patterns repeat, and end at the last frame that an output needs."""
    lines = f"input-node name=input dim=2\noutput-node name=output input={descriptor}"
    model = saved(lines, tmp_path / "net.raw")
    features = np.random.default_rng(1).standard_normal((2 * chunk, 2), np.float32)

    arguments = [f"--frames={frames}", f"--frame-subsampling-factor={step}"]
    written(tmp_path / "net.raw", tmp_path / "net.onnx", *arguments)
    session = session_of(tmp_path / "net.onnx")

    assert about(session)["frames_per_chunk"] == chunk
    expected = model.compute(features, frames_per_chunk=frames, frame_subsampling_factor=step)
    np.testing.assert_allclose(compute(session, features), expected, atol=TOLERANCE)


def test_xvectors(tmp_path: Path) -> None:
    """An x-vector model gives one vector for all frames, for the given number of sequences."""
    features = read_archive(TOOLS_REFERENCE / "feats6.ark")
    expected = read_vectors(TOOLS_REFERENCE / "xvector.whole.ark")
    for key, frames in list(features.items())[-2:]:
        options = [f"--frames={len(frames)}", "--xvector", "--sequences=2"]
        written(TOOLS_REFERENCE / "xvector-stats.raw", tmp_path / "net.onnx", *options)
        session = session_of(tmp_path / "net.onnx")

        [found] = session.run(["output"], {"input": np.stack([frames, frames])})

        assert found.shape == (2, 1, len(expected[key]))
        scale = np.abs(expected[key]).max()
        np.testing.assert_allclose(found[1, 0] / scale, expected[key] / scale, atol=TOLERANCE)


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_xvectors_of_any_length(opset: int, tmp_path: Path) -> None:
    """One model without --frames gives Kaldi's x-vectors, and those of the shortest utterances."""
    network = TOOLS_REFERENCE / "xvector-stats.raw"
    written(network, tmp_path / "net.onnx", "--xvector", f"--opset={opset}")
    session = session_of(tmp_path / "net.onnx")
    expected = read_vectors(TOOLS_REFERENCE / "xvector.whole.ark")
    features = read_archive(TOOLS_REFERENCE / "feats6.ark")
    longest = max(features.values(), key=len)
    least = about(session)["least_frames"]
    model = Model(read_nnet(network))

    for key, vector in list(expected.items())[-2:]:
        scale = np.abs(vector).max()
        found = compute(session, features[key])
        np.testing.assert_allclose(found / scale, vector[None] / scale, atol=TOLERANCE)
    for frames in (least, least + 1, 2 * least, len(longest)):
        given = longest[:frames]
        vector = model.xvector(given, min_chunk_size=1)
        np.testing.assert_allclose(compute(session, given)[0], vector, atol=TOLERANCE)
    with pytest.raises(NotComputableError):
        model.xvector(longest[: least - 1], min_chunk_size=1)


def test_utterances_of_any_length(tmp_path: Path) -> None:
    """Without --frames and --xvector, a model gives the outputs of whole utterances."""
    features = read_archive(DIGITS_EXAMPLE / "test.feats.ark")
    done = run(DIGITS_EXAMPLE / "final.raw", tmp_path / "digits.onnx", "--opset=18")
    session = session_of(tmp_path / "digits.onnx")

    found = {key: compute(session, rows) for key, rows in features.items()}

    assert "for ONNX Runtime 1.15 or newer: {" in done.stderr
    assert session.get_modelmeta().custom_metadata_map["nnet3.least_onnxruntime"] == "1.15"
    assert_same_archive(found, read_archive(DIGITS_REFERENCE / "test.output.ark"), TOLERANCE)


@pytest.mark.parametrize("form", [[], ["--frames=50"], ["--frames=20", "--stream"]])
def test_models_in_8_bits(form: list[str], tmp_path: Path) -> None:
    """The tool prints what 8 bits change."""
    given = f"ark:{DIGITS_EXAMPLE / 'test.feats.ark'}"
    options = [*form, "--int8", f"--features={given}"]
    done = run(DIGITS_EXAMPLE / "final.raw", tmp_path / "digits.onnx", *options)
    features = read_archive(DIGITS_EXAMPLE / "test.feats.ark")
    expected = read_archive(DIGITS_REFERENCE / "test.output.ark")

    assert f"bytes. For {given}: 5,049 rows of output differ by " in done.stderr
    [largest] = re.findall(r"at most by ([\d.]+) ", done.stderr)
    same = rows = 0
    for key, frames in features.items():
        if "--stream" in form:
            found = compute_stream(*stream_of(tmp_path / "digits.onnx"), frames)
        else:
            found = compute(session_of(tmp_path / "digits.onnx"), frames)
        np.testing.assert_allclose(found, expected[key], rtol=0, atol=1.1 * float(largest))
        same += (found.argmax(axis=1) == expected[key].argmax(axis=1)).sum()
        rows += len(found)
    assert f"in the same column in {same / rows:.1%} of rows" in done.stderr


def test_random_features_for_8_bits(tmp_path: Path) -> None:
    """Without features, the tool takes random ones, and i-vectors where the network has some."""
    done = run(TOOLS_REFERENCE / "tdnn-ivector.raw", tmp_path / "net.onnx", "--int8")

    assert "For random features, a random i-vector: 2,400 rows of output" in done.stderr


@pytest.mark.parametrize(("name", "chunk", "subsampling"), CASES)
def test_streams(name: str, chunk: int, subsampling: int, tmp_path: Path) -> None:
    """A stream computes, chunk by chunk, Kaldi's outputs."""
    arguments = [f"--frames={chunk}", f"--frame-subsampling-factor={subsampling}", "--stream"]
    written(TOOLS_REFERENCE / f"{name}.raw", tmp_path / "net.onnx", *arguments)

    found = {
        key: compute_stream(*stream_of(tmp_path / "net.onnx"), frames)
        for key, frames in read_archive(TOOLS_REFERENCE / "feats6.ark").items()
    }

    expected = read_archive(case_file(name, chunk, subsampling, "ark"))
    assert_same_archive(found, expected, TOLERANCE, is_relative=True)


@pytest.mark.parametrize("sequences", [0, 2])
def test_streams_with_ivectors(sequences: int, tmp_path: Path) -> None:
    """Each call takes one i-vector, also the first, whose layers read earlier i-vectors, too."""
    ivectors = "ReplaceIndex(ivector, t, 0)"
    lines = f"""
        input-node name=input dim=4
        input-node name=ivector dim=2
        component name=a type=AffineComponent input-dim=10 output-dim=3
        component name=b type=AffineComponent input-dim=11 output-dim=3
        component-node name=a component=a input=Append(input, Offset(input, 2), {ivectors})
        component-node name=b component=b input=Append(a, Offset(a, -3), a, Offset({ivectors}, -11))
        output-node name=output input=b
    """
    model, path = saved(lines, tmp_path / "net.raw"), tmp_path / "net.onnx"
    written(tmp_path / "net.raw", path, "--frames=6", "--stream", f"--sequences={sequences}")
    start, again = stream_of(path)
    rng = np.random.default_rng(1)
    features, ivector = (rng.standard_normal(shape, np.float32) for shape in ((61, 4), 2))

    found = compute_stream(start, again, features, ivector[None])

    for session in (start, again):
        shapes = {each.name: each.shape for each in session.get_inputs()}
        assert shapes["ivector"] == [sequences or "sequences", 1, 2]
        assert about(session)["left_context"] == 10
        assert about(session)["ivector_period"] == 6
    stream = model.stream(frames_per_chunk=6)
    expected = np.concatenate([stream.push(features, ivector), stream.finish()])
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("missing", "advice"),
    [
        ("onnx", "'pip install onnx onnxruntime'"),
        (
            "nnet3_runtime_onnx",
            "in a clone of the repository, 'uv build --all-packages --wheel --out-dir wheels', "
            "then 'pip install --find-links wheels nnet3-runtime-onnx'",
        ),
    ],
)
def test_without_the_extra(
    missing: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Without the package that makes models, or what it needs, the tool says what to install."""
    usual = importlib.import_module

    def import_module(name: str) -> object:
        if name == "nnet3_runtime_onnx":
            raise ModuleNotFoundError(f"No module named '{missing}'", name=missing)
        return usual(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    model, target = TOOLS_REFERENCE / "lstmp.raw", tmp_path / "net.onnx"
    monkeypatch.setattr(sys, "argv", ["nnet3-to-onnx", str(model), str(target), "--frames=20"])

    with pytest.raises(SystemExit) as stopped:
        nnet3_to_onnx.run()

    assert stopped.value.code == 255
    assert capsys.readouterr().err.endswith(
        f"models of ONNX need nnet3-runtime-onnx, and {missing} is not installed: {advice}\n"
    )
    assert not target.exists()
