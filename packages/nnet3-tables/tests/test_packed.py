"""Tables that gzip has packed: read as they are, and bounded in what they unpack to."""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from nnet3_tables import TableError, read_table, write_table


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


@pytest.mark.parametrize("size", [700, -9])
def test_packed_tables_that_break_off(size: int, tmp_path: Path) -> None:
    """The error says that the packed data is damaged."""
    with write_table(f"ark:{tmp_path}/a") as table:
        table.write("a", np.random.default_rng(0).random((100, 40)))
    packed = gzip.compress((tmp_path / "a").read_bytes())
    (tmp_path / "a.gz").write_bytes(packed[:size])

    with pytest.raises(TableError, match=r"cannot read .*: the packed data is damaged: "):
        list(read_table(f"ark:{tmp_path}/a.gz"))
