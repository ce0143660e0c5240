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


def integers(reader: Reader) -> list[int]:
    """The integers of an entry of a table."""
    return reader.table_integers().tolist()


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


def test_values_that_are_empty() -> None:
    """The end of a line behind a key ends the value, which is empty, as in Kaldi."""
    found = read_entries(io.BytesIO(b"a\nb 1 2\nc \nd 3"), "s", integers)

    assert [(each.key, each.value) for each in found] == [
        ("a", []), ("b", [1, 2]), ("c", []), ("d", [3])
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"k \0B\4\2\0\0\0\4\7\0\0\0\4\7\0\0\0", b"k 7 7\n"])
def test_what_follows_is_not_waited_for(data: bytes) -> None:
    """An entry is given when its last byte has come."""
    stream = Drops(bytes([byte]) for byte in data + b"next")

    entry = next(read_entries(stream, "s", integers))

    assert (entry.key, entry.value, stream.given) == ("k", [7, 7], len(data))
    assert (entry.end, entry.is_binary) == (len(data), b"B" in data)


def test_large_arrays_are_read_in_one_piece() -> None:
    """The rest of a large array is asked for at once, not in pieces that are tried in turn."""
    size = 1_000_000
    data = b"k \0BFV \4" + size.to_bytes(4, "little") + bytes(4 * size)
    tries = 0

    def decode(reader: Reader) -> int:
        nonlocal tries
        tries += 1
        return len(reader.vector())

    stream = Drops(iter([data[:100], *(data[n : n + 4096] for n in range(100, len(data), 4096))]))

    assert next(read_entries(stream, "s", decode)).value == size
    assert tries == 2
