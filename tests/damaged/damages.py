"""Ways to damage a file: its tokens, sizes, counts, nesting, descriptors and bytes."""

from __future__ import annotations

import functools
import random
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from damaged.bytes_and_words import damaged_data, damaged_words
from damaged.good_files import Element, GoodFile, good_files

Damage = Callable[[GoodFile, random.Random], bytes]
DAMAGES: list[Damage] = []
_INT32 = 2**31 - 1
_OPENING = re.compile(rb"<(\w+Component|NnetIo|NnetChainSup|Supervision|Nnet3(Chain)?Eg)>")
_ARRAYS = ("integers", "integer_pairs", "vector", "matrix", "double_vector", "double_matrix")
_ODD_TOKENS = (
    b"<", b">", b"<>", b"</>", b"<Dim", b"x" * 5000, b"\xff\xfe", b"-1", b"nan", b"[", b"]", b"FM",
    b"FV", b"DM", b"DV", b"CM", b"CM2", b"CM3", b"\0B", b"<Nnet3>", b"</Nnet3>",
    b"<CompositeComponent>", b"<NumComponents>", b"<UnknownComponent>",
)  # fmt: skip
_ODD_WORDS = ("(", ")", ",", "=", "input=", "Offset(", "c", "c_input", "first", "same", "\u00e9",
              "#", "'", "component", "1e400",
              "component name=d type=FixedScaleComponent scales=/etc/passwd dim=",
              "Switch(input, c)", "Const(1, 2147483647)")  # fmt: skip


def damage(function: Damage) -> Damage:
    """Registers a way to damage files."""
    DAMAGES.append(function)
    return function


@functools.cache
def _tokens(group: str) -> tuple[bytes, ...]:
    """Returns all tokens of all good files of a group."""
    return tuple(
        sorted(
            {
                good.bytes_of(element).strip()
                for good in good_files(group)
                for element in good.elements
                if element.kind == "token"
            }
        )
    )


@damage
def other_token(good: GoodFile, rng: random.Random) -> bytes:
    """A token is replaced by another token, or by something that is not a token."""
    token = rng.choice(_tokens(good.group) if rng.random() < 0.7 else _ODD_TOKENS)
    return good.with_bytes(good.pick(rng, "token"), token + b" ")


@damage
def lost_element(good: GoodFile, rng: random.Random) -> bytes:
    """An element is missing."""
    return good.with_bytes(good.pick(rng), b"")


@damage
def repeated_element(good: GoodFile, rng: random.Random) -> bytes:
    """An element is repeated."""
    element = good.pick(rng)
    return good.with_bytes(element, good.bytes_of(element) * rng.choice((2, 3, 1000)))


@damage
def moved_element(good: GoodFile, rng: random.Random) -> bytes:
    """An element stands in the place of another."""
    return good.with_bytes(good.pick(rng), good.bytes_of(good.pick(rng)))


@damage
def element_of_another_file(good: GoodFile, rng: random.Random) -> bytes:
    """An element of some other file stands in the place of one."""
    other = rng.choice(good_files(good.group))
    return good.with_bytes(good.pick(rng), other.bytes_of(other.pick(rng)))


@damage
def odd_integer(good: GoodFile, rng: random.Random) -> bytes:
    """A size, count or setting is out of range."""
    value = rng.choice((0, -1, 1, 2, 3, 7, 255, 65536, 46341, 10**9, _INT32, -_INT32 - 1))
    return good.with_bytes(good.pick(rng, "integer"), good.integer(value))


@damage
def neighbouring_integer(good: GoodFile, rng: random.Random) -> bytes:
    """A size, count or setting is one more or less."""
    element = good.pick(rng, "integer")
    text = good.bytes_of(element)
    try:
        value = struct.unpack("<bi", text)[1] if good.binary else int(text)
    except (struct.error, ValueError):  # a file without integers
        return odd_integer(good, rng)
    return good.with_bytes(element, good.integer(value + rng.choice((-1, 1))))


@damage
def odd_array_size(good: GoodFile, rng: random.Random) -> bytes:
    """The size at the head of an array, or its first bytes, are replaced."""
    element = good.pick(rng, *_ARRAYS)
    size = rng.choice((0, -1, 1, 65535, 46341, 10**9, _INT32, -_INT32 - 1))
    skipped = rng.choice((0, 1, 3, 4, 5, 8, 9))
    new = good.bytes_of(element)
    number = struct.pack("<i", size) if good.binary else b"%d" % size
    return good.with_bytes(element, new[:skipped] + number + new[skipped + 4 :])


@damage
def odd_real(good: GoodFile, rng: random.Random) -> bytes:
    """A real number is replaced by one out of range, or by no number."""
    value = rng.choice((float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 3.4e38, 1e-45))
    return good.with_bytes(good.pick(rng, "real"), good.real(value))


@damage
def odd_boolean(good: GoodFile, rng: random.Random) -> bytes:
    """A truth value is replaced by something else."""
    return good.with_bytes(good.pick(rng, "boolean"), rng.choice((b"T", b"F", b"t", b"\0", b"1 ")))


@damage
def odd_precision(good: GoodFile, rng: random.Random) -> bytes:
    """The byte with the size of a number is replaced, or a letter of a word."""
    element = good.pick(rng, "integer", "real", *_ARRAYS)
    head = bytes([rng.choice((0, 1, 2, 4, 8, 16, 127, 128, 255, 70, 68, 67))])
    return good.with_bytes(element, head + good.bytes_of(element)[1:])


@damage
def odd_line(good: GoodFile, rng: random.Random) -> bytes:
    """Some words of a config line are others."""
    element = good.pick(rng, "line")
    line = damaged_words(rng, good.bytes_of(element).decode("latin-1"), _ODD_WORDS)
    return good.with_bytes(element, line.rstrip("\n").encode() + b"\n")


@damage
def deep_descriptor(good: GoodFile, rng: random.Random) -> bytes:
    """A descriptor is nested deeply, or has many terms."""
    element = good.pick(rng, "line")
    count = rng.choice((3, 100, 1000, 20000))
    opening, closing = rng.choice(
        (("Offset(", ", 1)"), ("Scale(2.0, ", ")"), ("Sum(input, ", ")"), ("Append(", ")"),
         ("Failover(", ", c)"), ("IfDefined(", ")"), ("(", ")"), ("Switch(", ")"), ("Round(", "")),
    )  # fmt: skip
    descriptor = opening * count + "input" + closing * count
    if rng.random() < 0.3:
        descriptor = "Sum(" + "input, " * count + "input)"
    line = re.sub(rb"input=[^=]*$", b"input=" + descriptor.encode(), good.bytes_of(element))
    return good.with_bytes(element, line + b"\n")


def _components(good: GoodFile) -> list[Element]:
    """Returns the places of components in a file; of inputs and outputs in examples."""
    starts: list[tuple[bytes, int]] = []
    found = []
    for element in good.elements:
        if element.kind != "token":
            continue
        token = good.bytes_of(element).strip()
        if _OPENING.fullmatch(token):
            starts.append((token, element.start))
        elif starts and token == starts[-1][0].replace(b"<", b"</"):
            found.append(Element("component", starts.pop()[1], element.end))
    return found


@damage
def nested_component(good: GoodFile, rng: random.Random) -> bytes:
    """A component is nested in composites."""
    element = rng.choice(_components(good))
    depth = rng.choice((1, 2, 15, 16, 17, 1000))
    head = b"<CompositeComponent> <LearningRate> " + good.real(0.1) + b"<MaxRowsProcess> "
    head += good.integer(1) + b"<NumComponents> " + good.integer(1)
    tail = b"</CompositeComponent> "
    return good.with_bytes(element, head * depth + good.bytes_of(element) + tail * depth)


@damage
def misplaced_component(good: GoodFile, rng: random.Random) -> bytes:
    """A component stands before any element."""
    other = rng.choice(good_files(good.group))
    at = good.pick(rng).start
    component = other.bytes_of(rng.choice(_components(other)))
    return good.data[:at] + component + good.data[at:]


@damage
def other_component(good: GoodFile, rng: random.Random) -> bytes:
    """A component has another type than it should."""
    other = rng.choice(good_files(good.group))
    component = other.bytes_of(rng.choice(_components(other)))
    return good.with_bytes(rng.choice(_components(good)), component)


@damage
def cut(good: GoodFile, rng: random.Random) -> bytes:
    """The file ends too early."""
    return good.data[: rng.choice((good.pick(rng).start, rng.randrange(len(good.data))))]


@damage
@damage
def of_any_format(good: GoodFile, rng: random.Random) -> bytes:
    """The file is damaged without a look at its elements; twice as often as in other ways."""
    return damaged_data(rng, good.data, [each.data for each in good_files(good.group)])


class DamagedFile(NamedTuple):
    """A damaged file, and how it was made."""

    name: str
    data: bytes
    kind: str


def damaged_file(seed: int, number: int, group: str = "models") -> DamagedFile:
    """Returns file `number` of a seed, made from one of a group of good files."""
    rng = random.Random(f"{seed}:{number}")
    good = rng.choice(good_files(group))
    chosen = rng.choice(DAMAGES)
    form = "binary" if good.binary else "text"
    name = f"seed {seed}, file {number}: {good.name}, {form}, {chosen.__name__}"
    return DamagedFile(name, chosen(good, rng), good.kind)
