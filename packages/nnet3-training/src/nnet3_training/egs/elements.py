"""The parts of examples in Kaldi's files: indexes, and matrices of every form.

An index is, in binary, one byte, the difference of its t to the one before (n and x being the
same), or 127 and n, t and x.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from nnet3_descriptors.files import (
    BinaryReader,
    CompressedMatrix,
    Reader,
    SparseMatrix,
    Writer,
    compressed,
)
from nnet3_descriptors.indexes import IndexArray

from nnet3_training.examples import SparsePosteriors, StoredMatrix

_MAX_ROWS: Final = 1 << 24
_WHOLE_INDEX: Final = 127
_LARGEST_STEP: Final = 124
_COMPRESSED: Final = tuple(f"{token} ".encode() for token in compressed.FORMATS)

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
    """
    if SparseMatrix.is_next(reader):
        return _posteriors(SparseMatrix.read(reader))
    if isinstance(reader, BinaryReader) and reader.next_is(*_COMPRESSED):
        matrix = reader.compressed_matrix()
        return matrix if matrix.header.rows else matrix.decompressed()
    return np.array(reader.matrix())


def _posteriors(matrix: SparseMatrix) -> SparsePosteriors:
    return SparsePosteriors(
        dim=matrix.dim, splits=matrix.splits, classes=matrix.columns, weights=matrix.values
    )


def write_stored_matrix(writer: Writer, matrix: StoredMatrix) -> None:
    """Writes a matrix in the form that it has; in text, there is no compressed form."""
    if isinstance(matrix, CompressedMatrix):
        writer.compressed_matrix(matrix)
    elif isinstance(matrix, SparsePosteriors):
        SparseMatrix(matrix.dim, matrix.splits, matrix.classes, matrix.weights).write(writer)
    else:
        writer.matrix(matrix)
