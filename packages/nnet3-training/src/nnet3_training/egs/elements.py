"""The parts of examples in Kaldi's files: indexes, and matrices of every form.

An index is, in binary, one byte, the difference of its t to the one before (n and x being the
same), or 127 and n, t and x. A sparse matrix is, in binary and in text,

    SM rows { SV dim count { column value } }        rows=N { dim=D [ { column value } ] }
"""

from __future__ import annotations

import itertools
import struct
from typing import Any, Final

import numpy as np
from nnet3_descriptors.files import (
    BinaryReader,
    CompressedMatrix,
    Reader,
    Writer,
    compressed,
    parse_integer,
)
from nnet3_descriptors.indexes import IndexArray, is_int32

from nnet3_training.examples import SparsePosteriors, StoredMatrix

_MAX_ROWS: Final = 1 << 24
_WHOLE_INDEX: Final = 127
_LARGEST_STEP: Final = 124
_COMPRESSED: Final = tuple(f"{token} ".encode() for token in compressed.FORMATS)

_ROW: Final = struct.Struct("<3sbibi")
"""The beginning of a row of a sparse matrix in binary: "SV ", and two integers."""
_ELEMENT: Final = np.dtype([("four", "u1"), ("column", "<i4"), ("size", "u1"), ("value", "<f4")])
"""A column and a value of single precision, as they lie in binary."""

_OTHER_OBJECTS: Final = {
    "<Nnet3Eg>": "an example, but of a network that is no chain model",
    "<Nnet3ChainEg>": "an example of a chain model",
    "[": "a matrix or a vector in text",
} | dict.fromkeys(("FM", "DM", "CM", "CM2", "CM3"), "a matrix, as of features")
"""Other things that tables hold, by their first token."""


def expect_example(reader: Reader, token: str) -> None:
    """Reads the opening token of an example.

    Raises:
        ModelFileError: something else stands there; it says what, if it is known.
    """
    reader.skip_blanks()
    start = reader.position
    found = reader.token()
    if found != token:
        kind = f", {_OTHER_OBJECTS[found]}" if found in _OTHER_OBJECTS else ""
        reader.fail("unexpected token", at=start, expected=f"'{token}'", found=f"'{found}'{kind}")


def read_indexes(reader: Reader) -> IndexArray:
    """Reads the indexes of an input or output, (rows, 3).

    Raises:
        ModelFileError: the file holds something else there.
    """
    reader.expect("<I1V>")
    count = reader.count("indexes", maximum=_MAX_ROWS)
    indexes = np.zeros((count, 3), dtype=np.int32)
    if isinstance(reader, BinaryReader):
        _read_binary_indexes(reader, indexes)
        return indexes
    for row in range(count):
        reader.expect("<I1>")
        indexes[row] = reader.integer(), reader.integer(), reader.integer()
    return indexes


def _read_binary_indexes(reader: BinaryReader, indexes: IndexArray) -> None:
    n = t = x = row = 0
    while row < len(indexes):
        if not reader.remaining:
            reader.fail("the file ends within indexes")
        if reader.data[reader.position] == _WHOLE_INDEX:
            reader.position += 1
            n, t, x = reader.integer(), reader.integer(), reader.integer()
            indexes[row] = n, t, x
            row += 1
            continue
        end = reader.position + len(indexes) - row
        steps = np.frombuffer(reader.data[reader.position : end], dtype=np.int8)
        whole = steps == _WHOLE_INDEX
        steps = steps[: int(whole.argmax()) if whole.any() else len(steps)]
        times = t + np.cumsum(steps, dtype=np.int64)
        for wrong in np.flatnonzero(np.abs(steps.astype(np.int16)) > _LARGEST_STEP):
            found = str(steps[wrong])
            reader.fail("this is no index", at=reader.position + int(wrong), found=found)
        for wrong in np.flatnonzero(~((times >= -(1 << 31)) & (times < 1 << 31))):
            place = reader.position + int(wrong)
            reader.fail(f"t = {times[wrong]} does not fit in 32 bits", at=place)
        indexes[row : row + len(steps)] = n, 0, x
        indexes[row : row + len(steps), 1] = times
        t = int(times[-1])
        row += len(steps)
        reader.position += len(steps)


def write_indexes(writer: Writer, indexes: IndexArray) -> None:
    """Writes the indexes of an input or output."""
    writer.token("<I1V>")
    writer.integer(len(indexes))
    last_n = last_t = last_x = 0
    for n, t, x in indexes.tolist():
        if writer.binary and (n, x) == (last_n, last_x) and abs(t - last_t) <= _LARGEST_STEP:
            writer.raw((t - last_t).to_bytes(1, "little", signed=True))
        else:
            if writer.binary:
                writer.raw(bytes([_WHOLE_INDEX]))
            else:
                writer.token("<I1>")
            for number in (n, t, x):
                writer.integer(number)
        last_n, last_t, last_x = n, t, x


def read_stored_matrix(reader: Reader) -> StoredMatrix:
    """Reads a matrix in the form that it has: full, compressed or sparse.

    Raises:
        ModelFileError: the file holds no matrix there.
        ExampleError: a sparse matrix names columns beyond its dimension.
    """
    if isinstance(reader, BinaryReader):
        if reader.next_is(b"SM "):
            return _read_binary_sparse(reader)
        if reader.next_is(*_COMPRESSED):
            matrix = reader.compressed_matrix()
            return matrix if matrix.header.rows else matrix.decompressed()
    else:
        reader.skip_blanks()
        if reader.next_is(b"rows="):
            return _read_text_sparse(reader)
    return np.array(reader.matrix())


def _read_binary_sparse(reader: BinaryReader) -> SparsePosteriors:
    start = reader.position
    reader.expect("SM")
    rows = reader.count("rows", maximum=_MAX_ROWS, least_bytes=_ROW.size)
    begin, dims, counts, pieces = reader.position, {0}, [], []
    for _ in range(rows):
        if reader.remaining < _ROW.size:
            reader.fail("the file ends too early", expected="a row of a sparse matrix")
        token, four, dim, four_again, count = _ROW.unpack_from(reader.data, reader.position)
        size = count * _ELEMENT.itemsize
        is_row = (token, four, four_again) == (b"SV ", 4, 4)
        if not is_row or not 0 <= size <= reader.remaining - _ROW.size:
            break
        dims.add(dim)
        counts.append(count)
        reader.position += _ROW.size
        pieces.append(reader.data[reader.position : reader.position + size])
        reader.position += size
    elements = np.frombuffer(b"".join(pieces), dtype=_ELEMENT)
    is_single = bool((elements["four"] == 4).all() and (elements["size"] == 4).all())
    if len(counts) < rows or not is_single:  # double precision, or damaged
        reader.position = begin
        return _read_elements(reader, rows)
    if len(dims) > 2:
        reader.fail("the rows of a sparse matrix differ in their dimension", at=start)
    return SparsePosteriors(
        dim=max(dims),
        splits=np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
        classes=elements["column"].astype(np.int64),
        weights=elements["value"].copy(),
    )


def _read_elements(reader: BinaryReader, rows: int) -> SparsePosteriors:
    """Reads the rows of a sparse matrix number by number, so that errors can say where."""
    dims, splits = {0}, [0]
    entries: list[tuple[int, float]] = []
    for _ in range(rows):
        reader.expect("SV")
        dims.add(reader.integer())
        for _ in range(reader.count("elements", maximum=_MAX_ROWS)):
            entries.append((reader.integer(), reader.real()))
        splits.append(len(entries))
    return _sparse(max(dims), splits, entries)


def _sparse(dim: int, splits: list[int], entries: list[tuple[int, float]]) -> SparsePosteriors:
    pairs: Any = list(zip(*entries, strict=True)) or [(), ()]
    return SparsePosteriors(dim=dim, splits=splits, classes=pairs[0], weights=pairs[1])


def _read_text_sparse(reader: Reader) -> SparsePosteriors:
    rows, dims, splits = _assigned(reader, "rows"), {0}, [0]
    entries: list[tuple[int, float]] = []
    for _ in range(rows):
        dims.add(_assigned(reader, "dim"))
        reader.expect("[")
        reader.skip_blanks()
        while not reader.next_is(b"]"):
            entries.append((reader.integer(), reader.real()))
            reader.skip_blanks()
        reader.position += 1
        splits.append(len(entries))
    return _sparse(max(dims), splits, entries)


def _assigned(reader: Reader, name: str) -> int:
    """Reads `NAME=number`."""
    reader.skip_blanks()
    start = reader.position
    word = reader.token()
    found, equals, number = word.partition("=")
    try:
        value = parse_integer(number)
    except ValueError:
        value = -1
    if found != name or not equals or not 0 <= value <= _MAX_ROWS or not is_int32(value):
        reader.fail("this is no sparse matrix", at=start, expected=f"'{name}=' and a number",
                    found=f"'{word}'")  # fmt: skip
    return value


def write_stored_matrix(writer: Writer, matrix: StoredMatrix) -> None:
    """Writes a matrix in the form that it has; in text, there is no compressed form."""
    if isinstance(matrix, CompressedMatrix):
        writer.compressed_matrix(matrix)
    elif not isinstance(matrix, SparsePosteriors):
        writer.matrix(matrix)
    elif writer.binary:
        _write_binary_sparse(writer, matrix)
    else:
        _write_text_sparse(writer, matrix)


def _write_binary_sparse(writer: Writer, matrix: SparsePosteriors) -> None:
    elements = np.empty(len(matrix.classes), dtype=_ELEMENT)
    elements["four"] = elements["size"] = 4
    elements["column"], elements["value"] = matrix.classes, matrix.weights
    data = elements.tobytes()
    writer.token("SM")
    writer.integer(matrix.shape[0])
    splits = matrix.splits.tolist()
    for begin, end in itertools.pairwise(splits):
        writer.raw(_ROW.pack(b"SV ", 4, matrix.dim, 4, end - begin))
        writer.raw(data[begin * _ELEMENT.itemsize : end * _ELEMENT.itemsize])


def _write_text_sparse(writer: Writer, matrix: SparsePosteriors) -> None:
    writer.token(f"rows={matrix.shape[0]}")
    splits, classes, weights = matrix.splits.tolist(), matrix.classes, matrix.weights
    for begin, end in itertools.pairwise(splits):
        writer.token(f"dim={matrix.dim}")
        writer.token("[")
        for column, value in zip(
            classes[begin:end].tolist(), weights[begin:end].tolist(), strict=True
        ):
            writer.integer(column)
            writer.real(value)
        writer.token("]")
    writer.newline()
