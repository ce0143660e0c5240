"""Folders of speech models: each layout is read, and what is missing is named."""

from collections.abc import Iterable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech import ModelFolder
from nnet3_speech.folders import inside


def _folder(root: Path, files: dict[str, str] | Iterable[str]) -> Path:
    """A folder with files of these texts."""
    texts = files if isinstance(files, dict) else dict.fromkeys(files, "")
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _places(folder: ModelFolder) -> dict[str, str]:
    return {name: path.relative_to(folder.path).as_posix() for name, path in folder.files.items()}


def test_vosk(tmp_path: Path) -> None:
    """Vosk's layout with am/ and conf/ is listed with its options."""
    texts = dict.fromkeys(
        ["am/final.mdl", "conf/mfcc.conf", "ivector/final.ie", "graph/phones.txt", "README"], ""
    )
    texts["conf/model.conf"] = (
        "--min-active=200\n--beam=10.0\n--frame-subsampling-factor=3\n--acoustic-scale=0.5\n"
        "--endpoint.silence-phones=1:2\n--endpoint.rule2.min-trailing-silence=0.5\n"
    )

    folder = ModelFolder.read(_folder(tmp_path, texts))

    assert folder.network == tmp_path / "am/final.mdl"
    assert folder.options.beam == 10.0
    assert folder.is_vosk
    assert str(folder) == (
        f"{tmp_path}: frame subsampling 3, acoustic scale 0.5\n"
        "  am/final.mdl      network\n"
        "  conf/model.conf   options of Vosk\n"
        "  conf/mfcc.conf    features\n"
        "  ivector/final.ie  i-vector extractor\n"
        "  graph/phones.txt  names of phones"
    )


def test_vosk_in_the_root(tmp_path: Path) -> None:
    """Vosk's layout without subfolders has a frame subsampling of 3, as nothing says it."""
    folder = ModelFolder.read(_folder(tmp_path, ["final.mdl", "mfcc.conf", "HCLG.fst"]))

    assert folder.is_vosk
    assert folder.options.frame_subsampling_factor == 3
    assert _places(folder) == {
        "final.mdl": "final.mdl",
        "mfcc.conf": "mfcc.conf",
        "HCLG.fst": "HCLG.fst",
    }


def test_online(tmp_path: Path) -> None:
    """The last parts of the paths in online.conf lead to files in the folder."""
    _folder(tmp_path, ["final.mdl", "conf/own.conf", "conf/ivector_extractor.conf", "own.stats"])
    (tmp_path / "frame_subsampling_factor").write_text("3\n")
    (tmp_path / "conf/online.conf").write_text(
        "--feature-type=mfcc\n--mfcc-config=/export/exp/chain/conf/own.conf\n"
        "--ivector-extraction-config=exp/chain/conf/ivector_extractor.conf\n"
        "--global-cmvn-stats=../own.stats\n--endpoint.silence-phones=1\n"
    )

    folder = ModelFolder.read(tmp_path)

    assert not folder.is_vosk
    assert folder.options.frame_subsampling_factor == 3
    assert folder.file("mfcc.conf") == tmp_path / "conf/own.conf"
    assert folder.file("ivector_extractor.conf") == tmp_path / "conf/ivector_extractor.conf"
    assert folder.file("global_cmvn.stats") == tmp_path / "own.stats"


def test_xvector_run(tmp_path: Path) -> None:
    """The folder of a training run of x-vectors: a .raw network, and what follows it."""
    names = ["final.raw", "extract.config", "mean.vec", "transform.mat", "plda", "vad.conf"]

    folder = ModelFolder.read(_folder(tmp_path, names))

    assert folder.network == tmp_path / "final.raw"
    assert folder.options.frame_subsampling_factor == 1
    assert _places(folder) == {name: name for name in names}


def test_a_file_beside_the_folder(tmp_path: Path) -> None:
    """A path that leads to no file in the folder is taken as it is."""
    folder = ModelFolder.read(_folder(tmp_path / "model", ["final.mdl"]))
    (tmp_path / "final.ie").write_text("")

    assert folder.named(f"{tmp_path / 'final.ie'}", "") == tmp_path / "final.ie"


@given(st.text(max_size=300))
def test_no_path_leads_out_of_the_folder(text: str) -> None:
    """Whatever a config file names is in the folder, or nothing."""
    folder = Path(__file__).parent

    place = inside(folder, text)

    assert place is None or place.resolve().is_relative_to(folder.resolve())
