"""Symbol tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from nnet3_descriptors import FileError
from nnet3_speech import SpeechError, read_symbols


def test_symbols_are_read(tmp_path: Path) -> None:
    """Names have their numbers, in any order and with any blanks; a name may have other blanks."""
    path = tmp_path / "words.txt"
    path.write_text("<eps> 0\r\n\n\tzwei\u3000drei   7 \n#0\t3\n\u0146ull 1", encoding="utf-8")

    assert read_symbols(path) == {0: "<eps>", 7: "zwei\u3000drei", 3: "#0", 1: "\u0146ull"}
    assert list(read_symbols(path)) == [0, 7, 3, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"sil", "line 2: expected a name and a number, found 'sil'"),
        (b"sil -1", "line 2: expected a name and a number, found 'sil -1'"),
        (b"a b 1", "line 2: expected a name and a number, found 'a b 1'"),
        (b"a " + 5000 * b"1", "line 2: expected a name and a number, found 'a 1111"),
        (b"b 0", "line 2: 'b' has number 0, which is '<eps>' already"),
        (b"\xff 1", "line 2: the name is not in UTF-8: invalid start byte"),
    ],
)
def test_lines_that_are_no_symbols(line: bytes, message: str, tmp_path: Path) -> None:
    """An error says which line is wrong, and what it has."""
    path = tmp_path / "phones.txt"
    path.write_bytes(b"<eps> 0\n" + line + b"\n")

    with pytest.raises(SpeechError) as raised:
        read_symbols(path)

    assert str(raised.value).startswith(f"{path}, {message}")


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(FileError, match=r"phones\.txt"):
        read_symbols(tmp_path / "phones.txt")
