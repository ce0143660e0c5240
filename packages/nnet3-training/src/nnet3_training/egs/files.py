"""Kaldi's archives of training examples, as nnet3-get-egs makes them: reading and writing.

An archive has for each example (`NnetExample`) a key, a blank, and (in binary, behind the bytes 0
and "B")

    <Nnet3Eg> <NumIo> count { <NnetIo> name indexes matrix </NnetIo> } </Nnet3Eg>

An index is, in binary, one byte, the difference of its t to the one before (n and x being the
same), or 127 and n, t and x. The file does not say which nodes are inputs and which are outputs. A
network says it, or the names do: names of outputs begin with "output".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import IO, TYPE_CHECKING, Final, TypeVar

import attrs
import numpy as np
from nnet3_descriptors import ModelFileError, files
from nnet3_descriptors.indexes import IndexArray

from nnet3_training.egs.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    StoredMatrix,
    TrainingExample,
)
from nnet3_training.errors import ExampleError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


T = TypeVar("T")

ExampleSource = str | os.PathLike[str] | IO[bytes]
"""A path, or a file that is open for reading bytes."""


def key_bytes(key: object) -> bytes:
    """The key of an entry as an archive has it, with the blank behind it.

    Raises:
        ExampleError: it is not a key that a reader takes.
    """
    if fault := files.key_fault(key):
        raise ExampleError(fault)
    return f"{key} ".encode()


def check_readable(source: object) -> None:
    """Raises a ModelFileError if this is no file that is open for reading."""
    if not hasattr(source, "read"):
        found = type(source).__name__
        message = f"expected a path or a file open for reading bytes, found {found}"
        raise ModelFileError(message, path=files.stream_name(source))


def entries_of(
    source: ExampleSource, decode: Callable[[files.Reader], T]
) -> Iterator[files.Entry[T]]:
    """The entries of an archive, in its order; only the one at hand is held in memory.

    Args:
        source: A path, or a file that is open for reading bytes, such as a pipe.
        decode: Takes one object from a reader.

    Raises:
        FileError: the file cannot be read; if it does not exist, the error is a FileNotFoundError.
        ModelFileError: it is not an archive of such objects; the error says where.
    """
    opened: AbstractContextManager[IO[bytes]]
    if isinstance(source, str | os.PathLike):
        opened, path = files.open_file(source), os.fspath(source)
    else:
        check_readable(source)
        opened, path = nullcontext(source), files.stream_name(source)
    with opened as stream:
        entries = files.read_entries(stream, path, decode)
        while True:
            try:
                entry = next(entries, None)
            except OSError as error:
                raise files.file_error(error, "read", path) from error
            if entry is None:
                return
            yield entry


_MAX_ROWS: Final = 1 << 24
_WHOLE_INDEX: Final = 127
_LARGEST_STEP: Final = 124
_COMPRESSED: Final = tuple(f"{token} ".encode() for token in files.compressed.FORMATS)

_OTHER_OBJECTS: Final = {
    "<Nnet3Eg>": "an example, but of a network that is no chain model",
    "<Nnet3ChainEg>": "an example of a chain model",
    "[": "a matrix or a vector in text",
} | dict.fromkeys(("FM", "DM", "CM", "CM2", "CM3"), "a matrix, as of features")
"""Other things that tables hold, by their first token."""


def expect_example(reader: files.Reader, token: str) -> None:
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


def read_indexes(reader: files.Reader) -> IndexArray:
    """Reads the indexes of an input or output, (rows, 3).

    Raises:
        ModelFileError: the file holds something else there.
    """
    reader.expect("<I1V>")
    count = reader.count("indexes", maximum=_MAX_ROWS)
    indexes = np.zeros((count, 3), dtype=np.int32)
    if isinstance(reader, files.BinaryReader):
        _read_binary_indexes(reader, indexes)
        return indexes
    for row in range(count):
        reader.expect("<I1>")
        indexes[row] = reader.integer(), reader.integer(), reader.integer()
    return indexes


def _read_binary_indexes(reader: files.BinaryReader, indexes: IndexArray) -> None:
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


def write_indexes(writer: files.Writer, indexes: IndexArray) -> None:
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


def read_stored_matrix(reader: files.Reader) -> StoredMatrix:
    """Reads a matrix in the form that it has: full, compressed or sparse.

    Raises:
        ModelFileError: the file holds no matrix there.
    """
    if files.SparseMatrix.is_next(reader):
        at = reader.position
        found = files.SparseMatrix.read(reader)
        if len(found.splits) < 2:
            reader.fail("a sparse matrix has no rows", at=at)
        return _posteriors(found)
    if isinstance(reader, files.BinaryReader) and reader.next_is(*_COMPRESSED):
        matrix = reader.compressed_matrix()
        return matrix if matrix.header.rows else matrix.decompressed()
    return np.array(reader.matrix())


def _posteriors(matrix: files.SparseMatrix) -> SparsePosteriors:
    return SparsePosteriors(
        dim=matrix.dim, splits=matrix.splits, classes=matrix.columns, weights=matrix.values
    )


def write_stored_matrix(writer: files.Writer, matrix: StoredMatrix) -> None:
    """Writes a matrix in the form that it has; in text, there is no compressed form."""
    if isinstance(matrix, files.CompressedMatrix):
        writer.compressed_matrix(matrix)
    elif isinstance(matrix, SparsePosteriors):
        files.SparseMatrix(matrix.dim, matrix.splits, matrix.classes, matrix.weights).write(writer)
    else:
        writer.matrix(matrix)


_MAX_IOS: Final = 1 << 16


def read_examples(source: ExampleSource, nnet: Nnet | None = None) -> Iterator[TrainingExample]:
    """The examples of an archive, binary or text, in its order.

    Only one example is in memory at a time, so an archive or a pipe may have any length.
    (`nnet3_tables.read_objects` with `nnet3_training.egs.read_example` reads any table
    of Kaldi.)

    Args:
        source: A path, or a file that is open for reading bytes.
        nnet: The network to train; it tells inputs from outputs. Without one, outputs are the nodes
            whose names begin with "output".

    Raises:
        FileError: the file cannot be read; if it does not exist, the error is a FileNotFoundError.
        ModelFileError: it is not an archive of training examples; the error says where.
    """
    decode = partial(read_example, is_output=_outputs_of(nnet))
    for entry in entries_of(source, decode):
        yield attrs.evolve(entry.value, key=entry.key)


def _outputs_of(nnet: Nnet | None) -> Callable[[str], bool]:
    if nnet is None:
        return is_output_name
    return frozenset(node.name for node in nnet.output_nodes).__contains__


def is_output_name(name: str) -> bool:
    """Whether a name is that of an output, by Kaldi's convention."""
    return name.startswith("output")


def read_example(
    reader: files.Reader, is_output: Callable[[str], bool] = is_output_name
) -> TrainingExample:
    """Reads one example, from its opening token on; it has no key.

    Args:
        reader: Where it stands.
        is_output: Tells whether a name is that of an output.

    Raises:
        ModelFileError: the file holds something else there.
    """
    start = reader.position
    expect_example(reader, "<Nnet3Eg>")
    reader.expect("<NumIo>")
    at = reader.position
    count = reader.count("inputs and outputs", maximum=_MAX_IOS)
    if not count:
        reader.fail("the example has no input and no output", at=at)
    try:
        ios = [read_io(reader) for _ in range(count)]
        reader.expect("</Nnet3Eg>")
        return example_of(ios, is_output)
    except ExampleError as error:
        reader.fail(str(error), at=start)


def read_io(reader: files.Reader) -> tuple[str, IndexArray, StoredMatrix]:
    """Reads an input or output: its name, indexes (rows, 3) and matrix (rows, dim).

    Raises:
        ModelFileError: the file holds something else there.
    """
    reader.expect("<NnetIo>")
    io = reader.token(), read_indexes(reader), read_stored_matrix(reader)
    reader.expect("</NnetIo>")
    return io


def example_of(
    ios: Iterable[tuple[str, IndexArray, StoredMatrix]],
    is_output: Callable[[str], bool] = is_output_name,
) -> TrainingExample:
    """The example of inputs and outputs; it has no key.

    Args:
        ios: The name, indexes (rows, 3) and matrix (rows, dim) of each.
        is_output: Tells whether a name is that of an output.

    Raises:
        ExampleError: there is not one index for each row of a matrix.
    """
    inputs, outputs = [], []
    for name, indexes, matrix in ios:
        if is_output(name):
            known = matrix if isinstance(matrix, SparsePosteriors) else DenseTargets(values=matrix)
            outputs.append(ExampleOutput(name=name, indexes=indexes, supervision=known))
        else:
            inputs.append(ExampleInput(name=name, indexes=indexes, values=matrix))
    return TrainingExample(inputs=inputs, outputs=outputs)


def write_examples(
    examples: Iterable[TrainingExample], path: str | os.PathLike[str], *, binary: bool = True
) -> None:
    """Writes an archive; the keys are those of the examples.

    Of each example the inputs come first, then the outputs. Matrices are written in the form that
    they have, so examples from Kaldi's archives are written back byte for byte; text has no
    compressed form.

    Raises:
        ExampleError: an example has no key, no input and output, supervision that is neither dense
            nor sparse, or a name or matrix that a reader does not take.
        FileError: the file cannot be written.
    """
    files.write_atomically(
        path, (key_bytes(each.key) + example_bytes(each, binary=binary) for each in examples)
    )


def example_bytes(example: TrainingExample, *, binary: bool = True) -> bytes:
    """An example as it stands in an archive, behind its key.

    Raises:
        ExampleError: it is empty, an output has supervision that is neither dense nor sparse, or a
            name or matrix is one that a reader does not take.
    """
    if not example.ios:
        raise ExampleError(f"example '{example.key}' has no input and no output")
    writer = files.new_writer(binary=binary)
    writer.token("<Nnet3Eg>")
    writer.token("<NumIo>")
    writer.integer(len(example.ios))
    for io in example.ios:
        write_io(writer, io)
    writer.token("</Nnet3Eg>")
    return writer.data


def write_name(writer: files.Writer, name: str) -> None:
    """Writes the name of an input or output.

    Raises:
        ExampleError: it is not a name that a reader takes.
    """
    if files.key_fault(name) or not name.isascii():
        raise ExampleError(
            f"expected a name of an input or output in ASCII, without blanks, found {name!r}"
        )
    writer.token(name)


def write_io(writer: files.Writer, io: ExampleInput | ExampleOutput) -> None:
    """Writes an input or output.

    Raises:
        ExampleError: it has a name, or a matrix, that a reader does not take.
    """
    rows, columns = io.matrix.shape
    if (rows == 0) != (columns == 0):
        raise ExampleError(f"'{io.name}': a matrix of {rows} by {columns} cannot be written")
    writer.token("<NnetIo>")
    write_name(writer, io.name)
    write_indexes(writer, io.indexes)
    write_stored_matrix(writer, io.matrix)
    writer.token("</NnetIo>")
