"""What a network reads: as the folder says, and the same however a recording comes."""

import copy
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.files import read_matrix
from nnet3_speech import (
    CmvnOptions,
    FbankOptions,
    FeatureExtractor,
    FeaturePipeline,
    MfccOptions,
    ModelFolder,
    OnlineCmvn,
    OnlineCmvnOptions,
    OnlineCmvnState,
    OnlineIvectorExtractor,
    SlidingCmvnOptions,
    SpeechError,
    VadOptions,
    apply_cmvn,
    apply_sliding_cmvn,
    cmvn_stats,
    compute_vad,
    read_wav,
)

DATA = Path(__file__).parent / "data"
EXTRACTOR = Path(__file__).parent / "extractor"
SAMPLES = read_wav(DATA / "k2.wav").samples[0][:16000]


def make_folder(folder: Path, **files: str) -> ModelFolder:
    """A folder with a network and config files, "__" in their names for "/"."""
    (folder / "final.mdl").write_text("")
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_conf", ".conf")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return ModelFolder.read(folder)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> FeaturePipeline:
    """The pipeline of a folder with MFCC of few columns."""
    return FeaturePipeline.of(
        make_folder(tmp_path_factory.mktemp("model"), conf__mfcc_conf="--num-ceps=5\n")
    )


def test_features(pipeline: FeaturePipeline) -> None:
    """The features are those of the options."""
    features = pipeline.compute(SAMPLES, 16000)

    expected = FeatureExtractor(MfccOptions(num_ceps=5)).compute(SAMPLES, 16000)
    np.testing.assert_array_equal(features.features, expected)
    assert features.online_ivectors is None
    assert (pipeline.dim, pipeline.rate, pipeline.frame_seconds) == (5, 16000.0, 0.01)


def fbank() -> np.ndarray:
    """Filter banks of the recording."""
    return FeatureExtractor(FbankOptions()).compute(SAMPLES, 16000)


def vosk_folder(root: Path) -> ModelFolder:
    """A folder of Vosk whose i-vectors come from filter banks."""
    shutil.copytree(EXTRACTOR, root / "ivector")
    return make_folder(root, conf__model_conf="", conf__fbank_conf="")


def online_folder(root: Path, **more: str) -> ModelFolder:
    """The same as Kaldi's folder for online decoding, made elsewhere."""
    shutil.copytree(EXTRACTOR, root / "extractor")
    names = {
        "lda-matrix": "final.mat",
        "global-cmvn-stats": "global_cmvn.stats",
        "cmvn-config": "online_cmvn.conf",
        "splice-config": "splice.conf",
        "diag-ubm": "final.dubm",
        "ivector-extractor": "final.ie",
    }
    options = [f"--{name}=/export/exp/extractor/{file}" for name, file in names.items()]
    online = more.pop("conf__online_conf", "")
    return make_folder(
        root,
        conf__fbank_conf="",
        conf__ivector_extractor_conf="\n".join([*options, "--max-count=50"]),
        conf__online_conf="--feature-type=fbank\n--fbank-config=/export/exp/conf/fbank.conf\n"
        f"--ivector-extraction-config=/export/exp/conf/ivector_extractor.conf\n{online}",
        **more,
    )


@pytest.fixture(scope="module")
def with_ivectors(tmp_path_factory: pytest.TempPathFactory) -> FeaturePipeline:
    """The pipeline of a folder of Vosk."""
    return FeaturePipeline.of(vosk_folder(tmp_path_factory.mktemp("vosk")), with_ivectors=True)


def test_ivectors(tmp_path: Path) -> None:
    """i-vectors are those of the files and options of the folder, in both layouts."""
    for make, max_count in ((vosk_folder, 100.0), (online_folder, 50.0)):
        (tmp_path / make.__name__).mkdir()
        pipeline = FeaturePipeline.of(make(tmp_path / make.__name__), with_ivectors=True)

        found = pipeline.compute(SAMPLES, 16000)

        extractor = OnlineIvectorExtractor.of_folder(EXTRACTOR, max_count=max_count)
        np.testing.assert_array_equal(found.features, fbank())
        np.testing.assert_array_equal(found.online_ivectors, extractor.compute(fbank())[0])
        assert (found.ivector_period, pipeline.ivector_dim) == (10, extractor.ivector_dim)


def test_speaker(with_ivectors: FeaturePipeline) -> None:
    """What a recording tells of a speaker changes the i-vectors of the next."""
    first = with_ivectors.stream(16000)
    first.push(SAMPLES)
    first.finish()

    after = with_ivectors.compute(SAMPLES, 16000, first.speaker).online_ivectors

    extractor = OnlineIvectorExtractor.of_folder(EXTRACTOR, max_count=100.0)
    _, state = extractor.compute(fbank())
    np.testing.assert_allclose(after, extractor.compute(fbank(), state)[0], atol=1e-5)


def test_online_normalisation(tmp_path: Path) -> None:
    """online.conf may normalise the features of the network; i-vectors come from those before."""
    lines = "--cmvn-config=/export/exp/extractor/online_cmvn.conf\n"
    lines += "--global-cmvn-stats=/export/exp/extractor/global_cmvn.stats\n"
    folder = online_folder(tmp_path, conf__online_conf=lines)

    found = FeaturePipeline.of(folder, with_ivectors=True).compute(SAMPLES, 16000)

    statistics = np.asarray(read_matrix(EXTRACTOR / "global_cmvn.stats"), np.float64)
    cmvn = OnlineCmvn(OnlineCmvnOptions(), OnlineCmvnState(of_all=statistics))
    np.testing.assert_allclose(found.features, cmvn.push(fbank()), atol=1e-5)
    extractor = OnlineIvectorExtractor.of_folder(EXTRACTOR, max_count=50.0)
    np.testing.assert_array_equal(found.online_ivectors, extractor.compute(fbank())[0])


@pytest.mark.parametrize("text", ["", "--norm-means=true --norm-vars=true\n", "--norm-vars"])
def test_normalisation_of_utterances(text: str, tmp_path: Path) -> None:
    """cmvn_opts normalises whole recordings, and no streams."""
    folder = make_folder(tmp_path, conf__fbank_conf="", cmvn_opts=text)
    pipeline = FeaturePipeline.of(folder)

    found = pipeline.compute(SAMPLES, 16000).features

    options = CmvnOptions(norm_vars="vars" in text)
    np.testing.assert_array_equal(found, apply_cmvn(fbank(), cmvn_stats(fbank()), options))
    with pytest.raises(SpeechError, match="the features are normalised over the whole recording"):
        pipeline.stream(16000)


@pytest.mark.parametrize("opts", [{}, {"cmvn_opts": "--norm-means=true --norm-vars=true\n"}])
def test_online_normalisation_of_training_runs(opts: dict[str, str], tmp_path: Path) -> None:
    """With the file online_cmvn, features are normalised online, in streams too."""
    shutil.copy(EXTRACTOR / "global_cmvn.stats", tmp_path)
    folder = make_folder(tmp_path, conf__fbank_conf="", online_cmvn="", **opts)
    statistics = np.asarray(read_matrix(EXTRACTOR / "global_cmvn.stats"), np.float64)
    state = OnlineCmvnState(of_all=statistics)

    stream = FeaturePipeline.of(folder).stream(16000)

    found = np.concatenate([stream.push(SAMPLES).features, stream.finish().features])
    expected = OnlineCmvn(OnlineCmvnOptions(norm_vars=bool(opts)), state).push(fbank())
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_no_normalisation_of_utterances(tmp_path: Path) -> None:
    """cmvn_opts of most chain models normalises nothing."""
    folder = make_folder(tmp_path, conf__fbank_conf="", cmvn_opts="--norm-means=false\n")

    pipeline = FeaturePipeline.of(folder)

    np.testing.assert_array_equal(pipeline.compute(SAMPLES, 16000).features, fbank())
    assert pipeline.of_whole is None


def test_xvectors(tmp_path: Path) -> None:
    """The features of x-vectors lose a sliding mean, and then the frames without voice."""
    make_folder(tmp_path, conf__mfcc_conf="", extract_config="")
    frames = FeatureExtractor(MfccOptions()).compute(SAMPLES, 16000)
    normalised = apply_sliding_cmvn(frames, SlidingCmvnOptions(cmn_window=300, center=True))

    def found() -> np.ndarray:
        folder = ModelFolder.read(tmp_path)
        return FeaturePipeline.of(folder).compute(SAMPLES, 16000).features

    np.testing.assert_array_equal(found(), normalised)
    (tmp_path / "vad.conf").write_text("--vad-energy-threshold=5.5\n")
    voiced = compute_vad(frames, VadOptions(vad_energy_threshold=5.5))
    assert 0 < voiced.sum() < len(voiced)
    np.testing.assert_array_equal(found(), normalised[voiced])
    (tmp_path / "vad.conf").write_text("--vad-energy-threshold=1000\n")
    with pytest.raises(SpeechError, match="none of 98 frames is voiced"):
        found()


@given(st.lists(st.integers(0, len(SAMPLES)), max_size=8))
def test_streams(with_ivectors: FeaturePipeline, cuts: list[int]) -> None:
    """However a recording is cut, a stream gives what the whole has."""
    stream = with_ivectors.stream(16000)

    parts = [*map(stream.push, np.split(SAMPLES, sorted(cuts))), stream.finish()]

    whole = with_ivectors.compute(SAMPLES, 16000)
    np.testing.assert_array_equal(np.concatenate([each.features for each in parts]), whole.features)
    ivectors = np.concatenate([each.online_ivectors for each in parts])
    np.testing.assert_allclose(ivectors, whole.online_ivectors, atol=1e-4)


def test_online_folder(tmp_path: Path) -> None:
    """online.conf chooses the kind of features, and its files."""
    folder = make_folder(
        tmp_path,
        conf__online_conf="--feature-type=fbank\n--fbank-config=/export/conf/my.conf\n",
        conf__my_conf="--num-mel-bins=7\n",
        conf__mfcc_conf="--num-ceps=5\n",
    )

    assert FeaturePipeline.of(folder).dim == 7


def test_pickles(tmp_path: Path) -> None:
    """Folders and pipelines go to other processes; values keep their arrays read-only there."""
    folder = vosk_folder(tmp_path)
    pipeline = FeaturePipeline.of(folder, with_ivectors=True)

    there = pickle.loads(pickle.dumps(pipeline))  # noqa: S301, bytes of our own

    assert pickle.loads(pickle.dumps(folder)) == folder  # noqa: S301, bytes of our own
    assert there.ivectors.sources == pipeline.ivectors.sources
    assert there.ivectors.digest == pipeline.ivectors.digest
    assert not there.ivectors.extractor.projections.flags.writeable
    expected, found = (each.compute(SAMPLES, 16000) for each in (pipeline, there))
    np.testing.assert_array_equal(found.features, expected.features)
    np.testing.assert_array_equal(found.online_ivectors, expected.online_ivectors)
    with pytest.raises(TypeError, match="PipelineStream cannot be copied or pickled"):
        copy.copy(pipeline.stream(16000))
