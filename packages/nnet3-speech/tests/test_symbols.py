"""Symbol tables."""

from __future__ import annotations

from pathlib import Path

from nnet3_speech import read_symbols


def test_symbols_are_read(tmp_path: Path) -> None:
    """Names have their numbers, in any order and with any blanks; a name may have other blanks."""
    path = tmp_path / "words.txt"
    path.write_text("<eps> 0\r\n\n\tzwei\u3000drei   7 \n#0\t3\n\u0146ull 1", encoding="utf-8")

    assert read_symbols(path) == {0: "<eps>", 7: "zwei\u3000drei", 3: "#0", 1: "\u0146ull"}
    assert list(read_symbols(path)) == [0, 7, 3, 1]
