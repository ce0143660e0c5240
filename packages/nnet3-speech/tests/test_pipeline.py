"""What a network reads: as the folder says, and the same however a recording comes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech import (
    FeatureExtractor,
    FeaturePipeline,
    MfccOptions,
    ModelFolder,
    SpeechError,
    read_wav,
)

DATA = Path(__file__).parent / "data"
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


@given(st.lists(st.integers(0, len(SAMPLES)), max_size=8))
def test_streams(pipeline: FeaturePipeline, cuts: list[int]) -> None:
    """However a recording is cut, a stream gives what the whole has."""
    stream = pipeline.stream(16000)

    parts = [stream.push(piece).features for piece in np.split(SAMPLES, sorted(cuts))]

    parts.append(stream.finish().features)
    whole = pipeline.compute(SAMPLES, 16000).features
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_online_folder(tmp_path: Path) -> None:
    """online.conf chooses the kind of features, and its files."""
    folder = make_folder(
        tmp_path,
        conf__online_conf="--feature-type=fbank\n--fbank-config=/export/conf/my.conf\n",
        conf__my_conf="--num-mel-bins=7\n",
        conf__mfcc_conf="--num-ceps=5\n",
    )

    assert FeaturePipeline.of(folder).dim == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--feature-type=plp\n", "/conf/online.conf: --feature-type=plp: expected mfcc or fbank"),
        ("--add-pitch=true\n", "/conf/online.conf: the model reads pitch features, which are not"),
        (
            "--mfcc-config=/export/conf/hires.conf\n",
            " has no conf/hires.conf, which conf/online.conf: --mfcc-config names as "
            "'/export/conf/hires.conf'",
        ),
        ("", " has no conf/mfcc.conf (nor mfcc.conf or conf/mfcc_hires.conf)"),
    ],
)
def test_faults(text: str, message: str, tmp_path: Path) -> None:
    """What cannot be computed, and what is missing, is named."""
    folder = make_folder(tmp_path, conf__online_conf=text)

    with pytest.raises(SpeechError) as caught:
        FeaturePipeline.of(folder)

    assert str(caught.value).startswith(f"{tmp_path}{message}")


def test_pitch_of_vosk(tmp_path: Path) -> None:
    """A folder of Vosk whose network reads pitch features has the file pitch.conf."""
    folder = make_folder(tmp_path, mfcc_conf="", pitch_conf="")

    with pytest.raises(SpeechError, match=r"pitch\.conf: the model reads pitch features"):
        FeaturePipeline.of(folder)
