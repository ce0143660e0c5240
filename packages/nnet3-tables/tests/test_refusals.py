"""What readers and writers of tables refuse, and tables that threads write at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from nnet3_tables import (
    MatrixLookup,
    ObjectWriter,
    TableError,
    read_table,
    read_tokens,
    write_table,
)

MATRIX = np.ones((2, 3), np.float32)


def test_writers_in_threads(tmp_path: Path) -> None:
    """Threads write tables at the same time; failures are noticed, and standard error stays."""
    before = os.fstat(2)

    def write(number: int) -> str:
        good = f"ark:{tmp_path}/{number}.ark"
        target = "ark:| cat >/dev/null; exit 3" if number % 2 else good
        try:
            with write_table(target) as table:
                for entry in range(20):
                    table.write(f"k{entry}", MATRIX)
        except TableError as error:
            return str(error)
        return "written"

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(write, range(60)))

    assert found == ["written", "the command 'cat >/dev/null; exit 3' failed with status 3"] * 30
    assert os.path.samestat(before, os.fstat(2))


def test_threads_that_share_a_writer(tmp_path: Path) -> None:
    """A script file has the right places of entries that threads write to one archive."""
    with (  # with the option f, each entry lets others run
        write_table(f"ark,f,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table,
        ThreadPoolExecutor(4) as threads,
    ):
        list(threads.map(lambda n: table.write(f"k{n}", MATRIX[:1] * n), range(800)))

    found = {key: value[0, 0] for key, value in read_table(f"scp:{tmp_path}/a.scp")}
    assert found == {f"k{n}": n for n in range(800)}


def test_words_of_several_bytes(tmp_path: Path) -> None:
    """A view of memory is written, and counted, by its bytes."""
    words = memoryview(np.frombuffer(b"\0B\4\1\0\0\0\4\2\0\0\0", np.int16))
    with ObjectWriter(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table:
        for key in "ab":
            table.write(key, words)

    assert {key: value.tolist() for key, value in read_table(f"scp:{tmp_path}/a.scp")} == {
        "a": [2],
        "b": [2],
    }


def test_blanks_are_those_of_ascii(tmp_path: Path) -> None:
    """A blank of Unicode is a part of a word, in keys, in names of files and in words."""
    key = "a\u3000b\x85"
    with write_table(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a\xa0") as table:
        table.write(key, MATRIX)
    (tmp_path / "b.scp").write_text(f"{key}\t{tmp_path}/a.ark:8 \n", encoding="utf-8")
    (tmp_path / "words").write_text(f"{key} {key}\n", encoding="utf-8")

    assert [*dict(read_table(f"ark:{tmp_path}/a.ark"))] == [key]
    assert [*dict(read_table(f"scp:{tmp_path}/b.scp"))] == [key]
    assert read_tokens(f"ark:{tmp_path}/words") == {key: key}


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_array(MATRIX, mask=MATRIX > 0),
        [np.ma.masked_array([1.0, 2.0], mask=[True, False])],
    ],
)
def test_masked_arrays(value: object, tmp_path: Path) -> None:
    """A masked array is refused, because a table would lose its mask."""
    with (
        pytest.raises(TableError, match=r"'k': expected a .*, found a masked array"),
        write_table(f"ark:{tmp_path}/a.ark") as table,
    ):
        table.write("k", value)


def test_text_behind_a_value(tmp_path: Path) -> None:
    """What follows the bracket of a value on its line is the next entry, as in Kaldi."""
    (tmp_path / "a.ark").write_text("a [ 1 2 ] b [ 3 ]\n")
    found = {key: value.tolist() for key, value in read_table(f"ark:{tmp_path}/a.ark")}
    assert found == {"a": [1, 2], "b": [3]}


def test_keys_that_come_twice(tmp_path: Path) -> None:
    """Lookups in script files and tables of words refuse a key that comes twice."""
    with write_table(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table:
        table.write("a", MATRIX)
        table.write("a", 2 * MATRIX)
    with pytest.raises(TableError, match=r"a\.scp, line 2: the key 'a' comes twice"):
        MatrixLookup(f"scp:{tmp_path}/a.scp")
    with pytest.raises(TableError, match=r"a\.scp, line 2: the key 'a' comes twice"):
        read_tokens(f"ark:{tmp_path}/a.scp")


def test_objects_that_cannot_be_written(tmp_path: Path) -> None:
    """A writer of objects refuses what is no bytes, and entries after its end."""
    name = f"{tmp_path}/{'n' * 250}"
    with ObjectWriter(f"ark:{name}") as table:
        with pytest.raises(TableError, match="'a': expected bytes, found str"):
            table.write("a", "[ 1 ]\n")
        table.write("b", b"[ 1 ]\n")
    with pytest.raises(TableError, match="the table is closed"):
        table.write("c", b"[ 1 ]\n")
    assert [key for key, _ in read_table(f"ark:{name}")] == ["b"]


def test_ranges_of_many_digits(tmp_path: Path) -> None:
    """A range whose numbers have thousands of digits is refused as any other beyond the matrix."""
    with write_table(f"ark:{tmp_path}/a") as table:
        table.write("a", np.ones((2, 3)))
    (tmp_path / "scp").write_text(f"a {tmp_path}/a:2[0:{'9' * 5000}]\n")

    with pytest.raises(TableError, match=r"expected a range like \[0:9\]"):
        list(read_table(f"scp:{tmp_path}/scp"))
