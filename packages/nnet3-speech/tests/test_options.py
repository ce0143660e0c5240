"""Options are read from Kaldi's config files, and faults in these are named."""

from pathlib import Path

import attrs
from nnet3_speech.options import option, read_options


@attrs.frozen
class SomeOptions:
    """Options of each type."""

    num_mel_bins: int = 23
    low_freq: float = 20.0
    snip_edges: bool = True
    path: str = ""
    silence_phones: str = option("", name="endpoint.silence-phones")
    frames: int = option(3, least=1, most=9)
    scale: float = option(0.5, above=0.0, below=1.0)
    floor: float = option(0.0)
    window: str = option("povey", choices=("povey", "sine"))


def _file(folder: Path, text: str) -> Path:
    path = folder / "some.conf"
    path.write_text(text)
    return path


def test_each_type(tmp_path: Path) -> None:
    """A file gives integers, numbers, true and false, and text; "_" is "-", "#" a comment."""
    path = _file(
        tmp_path,
        "--num_mel_bins=40  # more\n\n--low-freq=-3e1\n--snip-edges=false\n--path=a=b\n"
        "--endpoint.silence-phones=1:2\n",
    )

    assert read_options(SomeOptions, path) == SomeOptions(40, -30.0, False, "a=b", "1:2")


def test_defaults_and_options_without_value(tmp_path: Path) -> None:
    """What a file leaves out has its default, and an option alone is true."""
    assert read_options(SomeOptions, _file(tmp_path, "--snip-edges\n")) == SomeOptions()
