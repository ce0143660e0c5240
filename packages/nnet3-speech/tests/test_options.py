"""Options are read from Kaldi's config files, and faults in these are named."""

from pathlib import Path

import attrs
import pytest
from nnet3_speech import SpeechError
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--num-mel-bin=3", ": unknown option --num-mel-bin; did you mean 'num-mel-bins'?"),
        ("--num-mel-bins=3.5", ": --num-mel-bins: expected an integer, found '3.5'"),
        (
            "--num-mel-bins=2147483648",
            ": --num-mel-bins: expected an integer of 32 bits, found '2147483648'",
        ),
        ("--low-freq=low", ": --low-freq: expected a number, found 'low'"),
        ("--snip-edges=maybe", ": --snip-edges: expected true or false, found 'maybe'"),
        ("--frames=0", ": --frames=0: expected 1 to 9"),
        ("--scale=1", ": --scale=1.0: expected more than 0, below 1"),
        ("--scale=nan", ": --scale=nan: expected a finite number up to 1e+09"),
        ("--floor=-inf", ": --floor=-inf: expected a finite number up to 1e+09"),
        ("--window=hann", ": --window=hann: expected povey or sine"),
        ("num-mel-bins=3", ", line 1: expected an option, --name=value, found 'num-mel-bins=3'"),
    ],
)
def test_faults(line: str, message: str, tmp_path: Path) -> None:
    """An error names the file, and the option or line."""
    path = _file(tmp_path, f"{line}\n")

    with pytest.raises(SpeechError) as caught:
        read_options(SomeOptions, path)

    assert str(caught.value) == f"{path}{message}"


def test_missing_file(tmp_path: Path) -> None:
    """A file that is missing is named."""
    with pytest.raises(SpeechError, match=r"none\.conf: the file cannot be read: No such file"):
        read_options(SomeOptions, tmp_path / "none.conf")
