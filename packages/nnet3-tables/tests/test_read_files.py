"""The values of a table as open files, and packed tables."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from nnet3_tables import TableError, read_files, read_table, write_table


def _value(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def _contents(rspecifier: str) -> dict[str, bytes]:
    """What a format that says its length reads of each value."""
    found = {}
    for key, opened in read_files(rspecifier):
        with opened() as file:
            found[key] = file.read(struct.unpack("<I", file.read(4))[0])
    return found


def test_script_and_archive(tmp_path: Path) -> None:
    """Script files give files, from an offset where a line has one; archives give themselves."""
    archive = b"a " + _value(b"one") + b"b " + _value(b"") + b"long-key " + _value(b"three" * 99999)
    (tmp_path / "x.ark").write_bytes(archive)
    (tmp_path / "a:7").write_bytes(_value(b"seven"))
    (tmp_path / "x.scp").write_text(f"a {tmp_path}/x.ark:2\nname {tmp_path}/a:7\n")

    assert _contents(f"scp:{tmp_path}/x.scp") == {"a": b"one", "name": b"seven"}
    expected = {"a": b"one", "b": b"", "long-key": b"three" * 99999}
    assert _contents(f"ark:{tmp_path}/x.ark") == expected
    assert _contents(f"ark:cat {tmp_path}/x.ark |") == expected
    assert _contents("ark:/dev/null") == {}


def test_packed_tables_are_read(tmp_path: Path) -> None:
    """Several members, one after the other, are one table."""
    with write_table(f"ark:{tmp_path}/a") as table:
        table.write("a", np.ones((2, 3)))
        table.write("b", np.zeros((100, 40)))
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a.gz").write_bytes(gzip.compress(data[:700]) + gzip.compress(data[700:]))

    shapes = {key: value.shape for key, value in read_table(f"ark:{tmp_path}/a.gz")}

    assert shapes == {"a": (2, 3), "b": (100, 40)}


def test_little_that_unpacks_to_much(tmp_path: Path) -> None:
    """A value that is a hundred times as large as its file is refused before it takes memory."""
    size = 200_000_000
    header = b"a \0BFM \4" + (size // 4).to_bytes(4, "little") + b"\4" + (1).to_bytes(4, "little")
    packed = gzip.compress(header + bytes(size), 6)
    (tmp_path / "a.gz").write_bytes(packed)
    tracemalloc.start()
    with pytest.raises(TableError) as caught:
        list(read_table(f"ark:{tmp_path}/a.gz"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(packed) < 300_000
    assert str(caught.value).startswith(f"cannot read '{tmp_path}/a.gz': its first ")
    assert "bytes, which gzip has packed, unpack to " in str(caught.value)
    assert most < size
