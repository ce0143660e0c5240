"""Recordings in place of features: whole, many, and as they come."""

import warnings
import wave
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import nnet3
import numpy as np
import pytest
import small_networks
from hypothesis import given
from hypothesis import strategies as st
from model_cases import assert_same
from nnet3.audio import AudioStream
from nnet3_descriptors import write_nnet
from nnet3_runtime_cuda import RunError
from nnet3_speech import FbankOptions, FeatureExtractor, Features, SpeechError, read_wav
from small_networks import stacked

RATE = 8000
NETWORK = stacked(
    5,
    "affine NaturalGradientAffine input-dim=15 output-dim=3",
    splice="Append(Offset(input, -2), input, Offset(input, 3))",
)
FBANK = "--num-mel-bins=5\n--sample-frequency=8000\n"
SAMPLES = np.random.default_rng(1).integers(-9000, 9000, 12345).astype(np.float32)


POOLING = stacked(
    5,
    "statistics StatisticsExtraction input-dim=5 output-period=1",
    "pooling StatisticsPooling input-dim=11 left-context=0 right-context=999",
)


def make_folder(folder: Path, *, network: str = NETWORK, fbank: str = FBANK) -> Path:
    """The folder of a training run, with a network of random parameters."""
    (folder / "conf").mkdir(parents=True)
    write_nnet(small_networks.network(network), folder / "final.raw")
    (folder / "frame_subsampling_factor").write_text("3\n")
    (folder / "conf" / "fbank.conf").write_text(fbank)
    return folder


def write_wav(path: Path, samples: np.ndarray = SAMPLES, *, channels: int = 1) -> Path:
    """A WAV file of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nnet3.Model:
    """The model of such a folder."""
    return nnet3.load(make_folder(tmp_path_factory.mktemp("model") / "run"))


def expected(model: nnet3.Model, samples: np.ndarray = SAMPLES) -> np.ndarray:
    """The outputs for the features of samples, with the options of the folder given by hand."""
    extractor = FeatureExtractor(FbankOptions(num_mel_bins=5, sample_frequency=8000.0))
    plain = nnet3.load(model.nnet)
    return plain.compute(extractor.compute(samples, RATE), frame_subsampling_factor=3)


def test_recordings(model: nnet3.Model, tmp_path: Path) -> None:
    """A file, and samples with their rate, have the outputs of their features."""
    path = write_wav(tmp_path / "a.wav")

    for recording in (path, str(path), (SAMPLES, RATE), read_wav(path)):
        np.testing.assert_array_equal(model.compute(recording), expected(model))
    frames = model.features(path).features
    np.testing.assert_array_equal(model.compute(frames), expected(model))
    factor_1 = model.compute(path, frame_subsampling_factor=1)
    assert len(factor_1) == len(frames)


def push_all(model: nnet3.Model, pieces: Sequence[np.ndarray]) -> None:
    """Gives samples to a stream, piece by piece."""
    stream = model.audio_stream(RATE)
    for piece in pieces:
        stream.push(piece)
    stream.finish()


def test_units_of_samples(model: nnet3.Model) -> None:
    """Of samples between -1 and 1 a stream warns once, and of quiet ones nothing does."""
    message = "between -1 and 1; expected the units of 16-bit"
    for count in 4000, len(SAMPLES):
        with pytest.warns(UserWarning, match=message) as found:
            push_all(model, [np.zeros(RATE), *np.array_split(SAMPLES[:count] / 32768, 4)])
        assert len(found) == 1
        assert Path(found[0].filename) == Path(__file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (np.zeros(RATE), np.sign(SAMPLES), SAMPLES[:RATE] / 3):
            model.compute((quiet, RATE))
            push_all(model, [quiet])


def unsigned(samples: np.ndarray) -> np.ndarray:
    """Samples as a WAV file of 8 bits has them."""
    return (samples / 256 + 128).astype(np.uint8)


class Tensor:
    """An array of another library, whose values are seen only when it is converted."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self._values

    def __len__(self) -> int:
        return len(self._values)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (SAMPLES / 32768, "between -1 and 1; expected the units of 16-bit"),
        ((SAMPLES / 32768).tolist(), "all samples are between -1 and 1"),
        (Tensor(SAMPLES / 32768), "all samples are between -1 and 1"),
        (SAMPLES.astype(np.int32) * 65536, "the samples are integers of up to 589[0-9]{6}"),
        (SAMPLES * 256, "the samples are integers of up to 2[0-9]{6}"),
        (unsigned(SAMPLES), r"the samples are unsigned \(uint8\)"),
    ],
    ids=["array", "list", "tensor", "32 bits", "24 bits", "8 bits"],
)
def test_other_units(model: nnet3.Model, samples: object, message: str) -> None:
    """Samples that are not in the units of 16 bits have a warning, whatever holds them."""
    runs = (
        lambda: model.compute((samples, RATE)),
        lambda: model.features((samples, RATE)),
        lambda: push_all(model, [samples]),
    )
    for run in runs:
        with pytest.warns(UserWarning, match=message) as found:
            run()
        assert [Path(each.filename) for each in found] == [Path(__file__)]


def test_interrupted_streams(model: nnet3.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, when frames were taken and not computed, a recording does not go on."""
    stream = model.audio_stream(RATE)
    monkeypatch.setattr(stream.stream, "push", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stream.push(SAMPLES)
    monkeypatch.undo()

    for go_on in (lambda: stream.push(SAMPLES), stream.finish):
        with pytest.raises(RunError, match="an error broke off this recording"):
            go_on()


def test_refused_samples(model: nnet3.Model) -> None:
    """Samples that are refused leave a recording as it was."""
    stream = model.audio_stream(RATE)
    for wrong in ([np.nan], [[1.0]], "abc", [1e30]):
        with pytest.raises(SpeechError):
            stream.push(wrong)
    np.testing.assert_allclose(
        np.concatenate([stream.push(SAMPLES), stream.finish()]), expected(model), atol=1e-5
    )


@pytest.mark.parametrize("count", [4000, len(SAMPLES)])
def test_warnings_that_raise(model: nnet3.Model, count: int) -> None:
    """The call can be repeated: nothing was taken."""
    stream, small, parts, warned = model.audio_stream(RATE), SAMPLES[:count] / 32768, [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in (lambda: stream.push(small), stream.finish):
            try:
                parts.append(step())
            except UserWarning:
                parts.append(step())
                warned += 1

    assert warned == 1
    np.testing.assert_allclose(np.concatenate(parts), expected(model, small), atol=1e-5)


def test_many_recordings(model: nnet3.Model, tmp_path: Path) -> None:
    """Recordings and features may be mixed; a recording that cannot be read is named."""
    path = write_wav(tmp_path / "a.wav", SAMPLES[:5000])
    items = [("a", path), ("b", (SAMPLES, RATE)), ("c", model.features(path).features)]
    items.append(("wav", read_wav(path)))

    results = dict(model.compute_many(items))

    np.testing.assert_allclose(results["a"], expected(model, SAMPLES[:5000]), atol=1e-5)
    np.testing.assert_allclose(results["b"], expected(model), atol=1e-5)
    for same in ("c", "wav"):
        np.testing.assert_array_equal(results[same], results["a"])
    many = model.compute_many([*items, ("d", tmp_path / "none.wav"), ("e", path)])
    assert [key for key, _ in islice(many, len(items))] == [key for key, _ in items]
    with pytest.raises(RunError, match=r"utterance 'd': .*none\.wav: the file cannot be read: No"):
        next(many)


def xvector_folder(folder: Path) -> Path:
    """The folder of a network that pools, with options of voice activity."""
    (make_folder(folder, network=POOLING) / "vad.conf").write_text("--vad-energy-threshold=9\n")
    return folder


def test_xvector(tmp_path: Path) -> None:
    """The vector of a recording is that of its voiced frames, less the mean of a window."""
    model = nnet3.load(xvector_folder(tmp_path / "run"))
    samples = np.where(np.arange(len(SAMPLES)) < 6000, 0.01 * SAMPLES, SAMPLES)

    vector = model.xvector((samples, RATE), min_chunk_size=10)

    extractor = FeatureExtractor(FbankOptions(num_mel_bins=5, sample_frequency=8000.0))
    frames = extractor.compute(samples, RATE)
    assert len(frames) < 300  # so that the window is the recording
    voiced = frames[:, 0] > 9 + 0.5 * frames[:, 0].mean()
    assert 0 < voiced.sum() < len(frames)
    expected = model.xvector((frames - frames.mean(axis=0))[voiced], min_chunk_size=10)
    assert_same(vector, expected, 1e-4)


def test_many_xvectors(tmp_path: Path) -> None:
    """Vectors of files, samples and features come in their order, and equal each alone."""
    model = nnet3.load(xvector_folder(tmp_path / "run"))
    rng = np.random.default_rng(2)
    path = write_wav(tmp_path / "a.wav", SAMPLES[:9000])
    items = [
        ("a", path),
        ("b", (SAMPLES, RATE)),
        *((f"c{n}", rng.standard_normal((60, 5), dtype=np.float32)) for n in range(20)),
    ]

    for options in ({"min_chunk_size": 10}, {"min_chunk_size": 10, "chunk_size": 20}):
        found = list(model.xvectors(items, threads=2, **options))
        assert [key for key, _ in found] == [key for key, _ in items]
        for (_, vector), (_, item) in zip(found, items, strict=True):
            assert_same(vector, model.xvector(item, **options), 1e-4)


@given(st.lists(st.integers(0, len(SAMPLES)), max_size=8), st.integers(1, 30))
def test_streams(model: nnet3.Model, cuts: list[int], chunk: int) -> None:
    """However a recording is cut, a stream gives the outputs of the whole."""
    stream = model.audio_stream(RATE, frames_per_chunk=chunk)

    pieces = [stream.push(piece) for piece in np.split(SAMPLES, sorted(cuts))]

    outputs = np.concatenate([*pieces, stream.finish()])
    np.testing.assert_allclose(outputs, expected(model), atol=1e-5)
    with pytest.raises(SpeechError, match="the recording is finished"):
        stream.push(SAMPLES)


def test_late_ivectors() -> None:
    """Frames wait for the first i-vector, however short chunks are."""
    model = nnet3.Model(small_networks.network(small_networks.WITH_IVECTOR))
    frames, ivectors = np.ones((4, 4), np.float32), np.ones((1, 2), np.float32)
    pipeline = SimpleNamespace(dim=4, ivector_dim=2, ivector_period=4, ivector_delay=3)
    ready = iter(
        Features(features=frames[[row]], online_ivectors=ivectors[: int(row == 3)])
        for row in range(4)
    )
    source = SimpleNamespace(pipeline=pipeline, push=lambda _: next(ready))
    stream = AudioStream(source, model.stream(frames_per_chunk=1))

    counts = [len(stream.push([])) for _ in range(4)]

    assert counts == [0, 0, 0, 4]


def test_context_at_the_start(tmp_path: Path) -> None:
    """Streams begin with the frames of context that the folder asks for."""
    recurrent = small_networks.RECURRENT.replace("input-dim=7", "input-dim=7 param-stddev=0.01")
    folder = make_folder(tmp_path / "run", network=recurrent, fbank=FBANK.replace("=5", "=4"))
    first = []
    for lines in ("", "--extra-left-context-initial=9\n"):
        (folder / "conf" / "model.conf").write_text(lines)
        model = nnet3.load(folder)
        first.append(model.audio_stream(RATE).push(SAMPLES)[0])
    wanted = model.audio_stream(RATE, extra_left_context_initial=9).push(SAMPLES)[0]
    np.testing.assert_array_equal(first[1], wanted)
    assert (first[0] != wanted).all()


def test_acoustic_scale(tmp_path: Path) -> None:
    """The folder's acoustic scale multiplies the outputs, unless another one is asked for."""
    folder = make_folder(tmp_path / "run")
    plain = nnet3.load(folder).compute((SAMPLES, RATE))
    (folder / "conf" / "model.conf").write_text("--acoustic-scale=2\n")

    model = nnet3.load(folder)

    np.testing.assert_array_equal(model.compute((SAMPLES, RATE)), 2 * plain)
    np.testing.assert_array_equal(model.compute((SAMPLES, RATE), acoustic_scale=1.0), plain)


def test_extract_config(tmp_path: Path) -> None:
    """The config lines of extract.config change the network of a folder."""
    folder = make_folder(tmp_path / "run")
    (folder / "extract.config").write_text("output-node name=output input=Sum(affine, affine)\n")

    outputs = nnet3.load(folder).compute((SAMPLES, RATE))

    whole = nnet3.load(folder / "final.raw")
    frames = nnet3.load(folder).features((SAMPLES, RATE)).features
    np.testing.assert_allclose(
        outputs, 2 * whole.compute(frames, frame_subsampling_factor=3), rtol=1e-6
    )


def test_what_is_found(model: nnet3.Model) -> None:
    """A model shows its network, and what its folder has."""
    assert str(model).splitlines() == [
        "<Model: 5 -> 3 columns, context 2 + 3 frames>",
        f"{model.folder.path}: frame subsampling 3, acoustic scale 1",
        "  final.raw                 network",
        "  frame_subsampling_factor  frame subsampling",
        "  conf/fbank.conf           features",
    ]


def test_folder_without_features(tmp_path: Path) -> None:
    """A folder without options of features computes given features."""
    folder = make_folder(tmp_path / "run")
    (folder / "conf" / "fbank.conf").unlink()
    model = nnet3.load(folder)

    assert model.compute(np.zeros((30, 5), np.float32)).shape == (10, 3)
