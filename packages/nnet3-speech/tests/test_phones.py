"""Tables of symbols, and phones frame by frame: joined, with times, with or without places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnet3_speech import Phone, best_phones, read_symbols, without_positions


def test_best_phones() -> None:
    """Equal neighbours are one phone, with the mean of its posterior."""
    posteriors = np.array([[0.6, 0.4], [0.8, 0.2], [0.1, 0.9], [0.7, 0.3]], np.float32)

    found = best_phones(posteriors, ("a", "b"), 0.5)

    assert [(phone.name, phone.start, phone.end) for phone in found] == [
        ("a", 0.0, 1.0),
        ("b", 1.0, 1.5),
        ("a", 1.5, 2.0),
    ]
    assert [phone.probability for phone in found] == pytest.approx([0.7, 0.9, 0.7])
    assert isinstance(found[0], Phone)
    assert best_phones(posteriors[:0], ("a", "b"), 0.5) == []


def test_positions() -> None:
    """Posteriors of the places of a phone in a word are added up."""
    names = ("sil", "a_B", "b_S", "a_E", "_B", "sil_B")
    posteriors = np.array([[0.1, 0.2, 0.05, 0.3, 0.15, 0.2]], np.float32)

    sums, bare = without_positions(posteriors, names)

    assert bare == ("sil", "a", "b", "_B")
    np.testing.assert_allclose(sums, [[0.3, 0.5, 0.05, 0.15]], atol=1e-6)


def test_symbols_are_read(tmp_path: Path) -> None:
    """Names have their numbers, in any order and with any blanks; a name may have other blanks."""
    path = tmp_path / "words.txt"
    path.write_text("<eps> 0\r\n\n\tzwei\u3000drei   7 \n#0\t3\n\u0146ull 1", encoding="utf-8")

    assert read_symbols(path) == {0: "<eps>", 7: "zwei\u3000drei", 3: "#0", 1: "\u0146ull"}
    assert list(read_symbols(path)) == [0, 7, 3, 1]
