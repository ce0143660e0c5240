"""Damage to files of any format: their words and tokens, sizes and numbers, and bytes."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence

from damaged.containers import damaged_words

_INT32 = 2**31 - 1
_INTEGERS = (0, -1, 1, 2, 3, 7, 255, 65535, 65536, 46341, 10**6, 10**9, _INT32, -_INT32 - 1)
_REALS = (float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1.5, 3.4e38, 1e-45)
_TOKEN = re.compile(rb"</?\w+>|\b[A-Z][A-Za-z0-9]+\b")
_SIZED = re.compile(rb"\x04....", re.DOTALL)
"""A number of four bytes as Kaldi writes it, behind its size."""
_TEXT = re.compile(rb"[\x20-\x7e\s]*")


def damaged_data(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Returns a file with some damage.

    Args:
        rng: Draws the damage.
        data: A good file.
        others: Files of the same format, from which pieces may come.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if _TEXT.fullmatch(data) and rng.random() < 0.6:
            data = damaged_words(rng, data.decode("ascii")).encode("utf-8", "replace")
        else:
            data = rng.choice(_WAYS)(rng, data, others)
    return data


def _replaced(data: bytes, start: int, end: int, new: bytes) -> bytes:
    return data[:start] + new + data[end:]


def _place(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)]


def _bytes(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _number in range(rng.choice((1, 1, 2, 10)) if data else 0):
        changed[rng.randrange(len(data))] = rng.choice((rng.randrange(256), 0, 255, 32, 10))
    return bytes(changed)


def _range(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = sorted((_place(rng, data), _place(rng, data)))
    if rng.random() < 0.7:
        end = min(end, start + rng.choice((1, 4, 5, 16, 64)))
    piece = data[start:end]
    times = 1000 if len(piece) < 100 else 2
    return _replaced(
        data, start, end, rng.choice((b"", bytes(len(piece)), piece * times, piece[::-1]))
    )


def _piece_of_another(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    start, end = sorted((_place(rng, other), _place(rng, other)))
    at = _place(rng, data)
    return _replaced(data, at, at + rng.choice((0, end - start)), other[start:end])


def _sized_number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replaces one of the numbers that have their size before them, or the size."""
    places = [found.start() for found in _SIZED.finditer(data)]
    if not places:
        return _number(rng, data, _)
    at = rng.choice(places)
    (old,) = struct.unpack_from("<i", data, at + 1)
    if rng.random() < 0.1:
        return _replaced(data, at, at + 1, bytes([rng.choice((0, 1, 2, 8, 252, 255))]))
    return _replaced(data, at + 1, at + 5, _packed(rng, old))


def _number(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replaces four or eight bytes anywhere by a number."""
    at = _place(rng, data)
    new = struct.pack("<q", rng.choice((*_INTEGERS, 2**63 - 1, -(2**63), 2**40)))
    if rng.random() < 0.7:
        old = int.from_bytes(data[at : at + 4].ljust(4, b"\0"), "little", signed=True)
        new = _packed(rng, old)
    return _replaced(data, at, at + len(new), new)


def _packed(rng: random.Random, old: int) -> bytes:
    if rng.random() < 0.2:
        return struct.pack("<f", rng.choice(_REALS))
    near = max(min(old + rng.choice((-1, 1)), _INT32), -_INT32 - 1)
    return struct.pack("<i", near if rng.random() < 0.4 else rng.choice(_INTEGERS))


def _token(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Replaces, removes or doubles a token."""
    places = list(_TOKEN.finditer(data))
    if not places:
        return _range(rng, data, others)
    found, other = rng.choice(places), rng.choice(others)
    tokens = _TOKEN.findall(other) or [b"<X>"]
    new = rng.choice((b"", found[0] + b" " + found[0], rng.choice(tokens), rng.choice(tokens)))
    return _replaced(data, *found.span(), new)


_WAYS = (_cut, _bytes, _bytes, _range, _piece_of_another, _sized_number, _sized_number,
         _sized_number, _number, _number, _token, _token)  # fmt: skip
