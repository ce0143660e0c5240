"""Archives of objects are read piece by piece."""

import io
from collections.abc import Iterator

import pytest
from nnet3_descriptors import ModelFileError
from nnet3_descriptors.files import Reader, entries, read_entries


def decode(reader: Reader) -> list[int]:
    """Reads integers after their number, and a token."""
    values = [reader.integer() for _ in range(reader.integer())]
    reader.expect("end")
    return values


class Drops:
    """A stream that gives a few bytes at a time."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces = pieces
        self.given = 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        piece = next(self.pieces, b"")
        self.given += len(piece)
        return piece


def text(count: int) -> bytes:
    """An entry."""
    return f"k{count} {count} {' '.join(str(n) for n in range(count))} end ".encode()


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_entries_that_are_cut(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's entries do not depend on where its pieces end."""
    monkeypatch.setattr(entries, "_PIECE", piece)
    data = b"".join(map(text, [0, 3, 200, 1]))

    found = list(read_entries(io.BytesIO(data), "s", decode))

    assert [(each.key, len(each.value)) for each in found] == [
        ("k0", 0), ("k3", 3), ("k200", 200), ("k1", 1)
    ]  # fmt: skip
    assert b"".join(f"{each.key} ".encode() + each.data for each in found) == data


@pytest.mark.any_versions
def test_memory_of_endless_streams() -> None:
    """An entry is returned before the stream has ended, after a few further pieces at most."""
    stream = Drops(iter(lambda: text(1000), None))

    found = read_entries(stream, "s", decode)

    assert [next(found).key for _ in range(500)] == ["k1000"] * 500
    assert stream.given < 500 * len(text(1000)) + (1 << 20)


def test_damage_within_a_stream() -> None:
    """A fault that more bytes cannot mend is an error at once, with its place in the stream."""
    stream = Drops(iter([text(5), b"bad 1 x end "] + [text(1000)] * 10_000))

    found = read_entries(stream, "s", decode)

    assert next(found).key == "k5"
    with pytest.raises(ModelFileError, match="integer") as caught:
        next(found)
    assert caught.value.offset == len(text(5)) + len("bad 1 ")
    assert stream.given < 1 << 22


def test_streams_that_break_off() -> None:
    """An incomplete last entry is an error."""
    with pytest.raises(ModelFileError):
        list(read_entries(io.BytesIO(text(5)[:-3]), "s", decode))
