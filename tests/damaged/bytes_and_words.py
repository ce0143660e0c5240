"""Damage to files of any format: their words and tokens, sizes and numbers, and bytes."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_INT32 = 2**31 - 1
INTEGERS = (0, -1, 1, 2, 3, 7, 255, 997, 65535, 65536, 46341, 10**6, 2**20, 10**9, 2**30, _INT32,
            -_INT32 - 1)  # fmt: skip
NUMBERS = (*INTEGERS, _INT32 + 1, 2**63, -(2**63) - 1, 10**30)
REALS = (0.0, -1.0, 0.5, 2.5, 1e-45, 3.4e38, 1e39, 1e300, -1e300, "inf", "-inf", "nan")
OTHERS = (None, True, False, "", "a", "0", "\x00", "\x1b[31m\n", "x" * 100_000, "Append(", "input",
          "output", [], [[]], {}, {"$tensor": "a"}, {"type": "NoOpComponent"}, [1], [0, 0, 0],
          ["input"], "Offset(input, 2147483647)", "Const(1e300, 4)", "Switch(input, input)",
          "ReplaceIndex(input, x, 1)", "Sum(input, Failover(input, input))")  # fmt: skip
_SINGLE = (float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1.5, 3.4e38, 1e-45)
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
    new = struct.pack("<q", rng.choice((*INTEGERS, 2**63 - 1, -(2**63), 2**40)))
    if rng.random() < 0.7:
        old = int.from_bytes(data[at : at + 4].ljust(4, b"\0"), "little", signed=True)
        new = _packed(rng, old)
    return _replaced(data, at, at + len(new), new)


def _packed(rng: random.Random, old: int) -> bytes:
    if rng.random() < 0.2:
        return struct.pack("<f", rng.choice(_SINGLE))
    near = max(min(old + rng.choice((-1, 1)), _INT32), -_INT32 - 1)
    return struct.pack("<i", near if rng.random() < 0.4 else rng.choice(INTEGERS))


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


def damaged_words(rng: random.Random, text: str, others: Sequence[str] = ()) -> str:
    """Some words of a text are missing, doubled, or replaced, perhaps by one of the others."""
    parts = re.split(r"([\s=(),:\[\]]+)", text)
    numbers = [at for at, part in enumerate(parts) if re.fullmatch(r"-?[\d.e+-]+", part)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(parts))
        if numbers and rng.random() < 0.7:
            at = rng.choice(numbers)
        old = parts[at]
        if re.fullmatch(r"-?\d{1,4000}", old) and rng.random() < 0.9:  # what int() takes
            value = int(old) + rng.choice((-1, 1))
            parts[at] = str(value if rng.random() < 0.4 else rng.choice(NUMBERS))
        elif re.fullmatch(r"-?[\d.e+-]+", old) and rng.random() < 0.9:
            parts[at] = str(rng.choice(REALS))
        else:
            parts[at] = rng.choice(
                ("", old * 2, parts[rng.randrange(len(parts))], *map(str, OTHERS), *others)
            )
    return "".join(parts)


def write_folder(
    rng: random.Random,
    folder: Path,
    files: Mapping[str, bytes],
    damage: Callable[[str, bytes], bytes],
) -> None:
    """Writes the files of a folder, one of them with damage, which takes its name and data."""
    changed = rng.choice(sorted(files))
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(damage(name, data) if name == changed else data)
