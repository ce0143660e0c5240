"""Phones of utterances in Kaldi's tables: sequences, and alignments with durations.

In text they are a line: `phone phone ...`, or `phone duration ; phone duration ...`. In binary they
are a count and as many integers, or pairs of integers.
"""

from __future__ import annotations

from nnet3_descriptors.files import BinaryReader, Reader, parse_integer

_MAX_PHONES = 1 << 20


def read_phones(reader: Reader) -> list[int]:
    """Reads the phones of an utterance.

    Raises:
        ModelFileError: the file holds something else there.
    """
    phones: list[int] = reader.table_integers().tolist()
    return phones


def read_alignment(reader: Reader) -> list[tuple[int, int]]:
    """Reads phones and durations of an utterance, as ali-to-phones --write-lengths makes them.

    Raises:
        ModelFileError: the file holds something else there.
    """
    if isinstance(reader, BinaryReader):
        count = reader.count("phones", maximum=_MAX_PHONES)
        return [(reader.integer(), reader.integer()) for _ in range(count)]
    start = reader.position
    pairs = []
    for part in reader.line().split(";"):
        words = part.split()
        if len(words) != 2:
            reader.fail(
                "these are no pairs", at=start, expected="phone duration ; phone duration ...",
                found=repr(part.strip()[:48]),
            )  # fmt: skip
        phone, duration = _integers(reader, words, start)
        pairs.append((phone, duration))
    return pairs


def _integers(reader: Reader, words: list[str], start: int) -> list[int]:
    try:
        return [parse_integer(word) for word in words]
    except ValueError:
        text = " ".join(words)[:48]
        reader.fail("these are no integers", at=start, expected="integers", found=repr(text))
