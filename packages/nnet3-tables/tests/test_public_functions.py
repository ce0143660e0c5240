"""Tables of matrices or vectors, read and written by name only."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from nnet3_tables import (
    MatrixWriter,
    TableError,
    TableWarning,
    VectorWriter,
    read_table,
    write_table,
)

KEYS = st.lists(st.text("abcäß0-_", min_size=1, max_size=4), unique=True, max_size=4)
FLOATS = st.floats(width=32, allow_nan=False)


@pytest.mark.parametrize("words", ["ark", "ark,t"])
@given(data=st.data(), keys=KEYS, ndim=st.sampled_from([1, 2]))
def test_round_trip(
    words: str,
    data: st.DataObject,
    keys: list[str],
    ndim: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Values of all kinds are read back as written, in order."""
    path = tmp_path_factory.getbasetemp() / "round_trip.ark"
    shapes = arrays.array_shapes(min_dims=ndim, max_dims=ndim, max_side=4)
    values = {key: data.draw(arrays.arrays(np.float32, shapes, elements=FLOATS)) for key in keys}

    with write_table(f"{words}:{path}") as table:
        for key, value in values.items():
            table.write(key, value)
    read = dict(read_table(f"ark:{path}"))

    assert list(read) == list(values)
    for key, value in values.items():
        assert read[key].shape == value.shape
        np.testing.assert_allclose(read[key], value, rtol=1e-5)


def test_values_belong_to_the_caller(tmp_path: Path) -> None:
    """Values keep their numbers when others are read, and can be changed."""
    with write_table(f"ark:{tmp_path}/a.ark") as table:
        for number in range(100):
            table.write(f"key{number:02}", np.full((30, 20), number))

    values = [value for _, value in read_table(f"ark:{tmp_path}/a.ark")]
    values[0] += 1

    assert [value.mean() for value in values] == [1, *range(1, 100)]
    assert all(value.flags.owndata and value.flags.writeable for value in values)


def test_script_files(tmp_path: Path) -> None:
    """Values are found by a script file; the option p skips missing ones."""
    with write_table(f"ark,scp:{tmp_path}/a.ark,{tmp_path}/a.scp") as table:
        table.write("a", [1.0, 2.0])
        table.write("b", [3.0])
    (tmp_path / "a.scp").write_text(f"nobody /nowhere\n{(tmp_path / 'a.scp').read_text()}")

    with pytest.raises(TableError, match="'nobody' at /nowhere: cannot be read: No such file"):
        list(read_table(f"scp:{tmp_path}/a.scp"))
    with pytest.warns(TableWarning, match="'nobody' at /nowhere: .*; left out because of the op"):
        found = {key: value.tolist() for key, value in read_table(f"scp,p:{tmp_path}/a.scp")}
    assert found == {"a": [1, 2], "b": [3]}


def test_damage(tmp_path: Path) -> None:
    """The error names file, byte and what was expected; earlier values are returned."""
    (tmp_path / "a.ark").write_bytes(b"first  [ 1 2 ]\nsecond \0BXY ")

    read = read_table(f"ark:{tmp_path}/a.ark")

    assert next(read)[0] == "first"
    with pytest.raises(TableError, match=r"'first', byte 24: this is no matrix; expected 'FM',"):
        next(read)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("", [1.0], "expected a key without blanks, found ''"),
        ("a b", [1.0], "expected a key without blanks, found 'a b'"),
        (5, [1.0], "expected a key without blanks, found 5"),
        ("a\0b", [1.0], "expected a key without null characters, found 'a\\x00b'"),
        ("\udcff", [1.0], "expected a key in UTF-8, found '\\udcff'"),
        ("ü" * 2049, [1.0], "expected a key of at most 4096 bytes, found 4098: 'üü"),
        ("b", [[1.0]], "'b': expected a vector of real numbers, found float64 of shape (1, 1)"),
        ("b", 1.0, "'b': expected a vector of real numbers, found float64 of shape ()"),
        ("b", ["x"], "'b': expected a vector of real numbers, found <U1"),
        ("b", [[1], [2, 3]], "'b': expected a vector: "),
        ("b", [1e300], "'b' has a number that is too large for single precision"),
    ],
)
def test_values_that_cannot_be_written(
    key: str, value: object, message: str, tmp_path: Path
) -> None:
    """The error says what is wrong; earlier values are in the file with the other name."""
    path = tmp_path / "a.ark"

    def write() -> None:
        with write_table(f"ark:{path}") as table:
            table.write("first", [1, 2])
            table.write(key, value)

    with pytest.raises(TableError, match=f"^{re.escape(message)}"):
        write()

    assert not path.exists()
    (part,) = tmp_path.glob("a.ark.*.incomplete")
    assert [key for key, _ in read_table(f"ark:{part}")] == ["first"]


def test_longest_key(tmp_path: Path) -> None:
    """A key of 4,096 bytes is written and read."""
    key = "ü" * 2048
    with write_table(f"ark:{tmp_path}/a.ark") as table:
        table.write(key, [1.0])

    assert [found for found, _ in read_table(f"ark:{tmp_path}/a.ark")] == [key]


def test_table_without_entries(tmp_path: Path) -> None:
    """A table without entries is written and read, but not written after an error of the caller."""
    with write_table(f"ark:{tmp_path}/a.ark"):
        pass
    with pytest.raises(KeyError), write_table(f"ark:{tmp_path}/b.ark"):
        raise KeyError

    assert list(read_table(f"ark:{tmp_path}/a.ark")) == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.ark"]


def test_empty_values(tmp_path: Path) -> None:
    """A matrix without elements has no rows and no columns in Kaldi's files."""
    for number, value in enumerate((np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(0))):
        with write_table(f"ark:{tmp_path}/{number}") as table:
            table.write("key", value)

    shapes = [dict(read_table(f"ark:{tmp_path}/{number}"))["key"].shape for number in range(3)]
    assert shapes == [(0, 0), (0, 0), (0,)]


@pytest.mark.parametrize(
    ("writer", "key", "value", "message"),
    [
        (MatrixWriter, "a b", [[1.0]], "expected a key without blanks, found 'a b'"),
        (
            MatrixWriter,
            "a",
            [1.0],
            "'a': expected a matrix of real numbers, found float64 of shape (1,)",
        ),
        (
            VectorWriter,
            "a",
            [[1.0]],
            "'a': expected a vector of real numbers, found float64 of shape (1, 1)",
        ),
        (VectorWriter, "a", [1e300], "'a' has a number that is too large for single precision"),
    ],
)
def test_writers_of_one_kind_refuse_others(
    writer: type[MatrixWriter], key: str, value: object, message: str, tmp_path: Path
) -> None:
    """A writer of matrices or of vectors says what it expected and found."""
    expected = pytest.raises(TableError, match=f"^{re.escape(message)}$")
    with writer(f"ark:{tmp_path}/a.ark") as table, expected:
        table.write(key, value)


def test_empty_matrices_of_the_writer(tmp_path: Path) -> None:
    """A writer of matrices writes one without rows, whatever its columns."""
    with MatrixWriter(f"ark:{tmp_path}/a.ark") as table:
        table.write("a", np.zeros((0, 23), np.float32))

    assert dict(read_table(f"ark:{tmp_path}/a.ark"))["a"].shape == (0, 0)


@pytest.mark.parametrize(("writer", "value"), [(MatrixWriter, [[1.0]]), (VectorWriter, [1.0])])
def test_bytes_are_those_of_the_other_writers(
    writer: type[MatrixWriter], value: list[float], tmp_path: Path
) -> None:
    """A table is written as the same bytes as by the writers of one kind."""
    for table in (write_table(f"ark:{tmp_path}/a"), writer(f"ark:{tmp_path}/b")):
        with table:
            table.write("key", value)

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
