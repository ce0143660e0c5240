"""Reading and writing the training examples of Kaldi's nnet3, as nnet3-get-egs makes them.

Format (`NnetExample`): an archive of a key, a blank, and (in binary, behind the bytes 0 and "B")

    <Nnet3Eg> <NumIo> count { <NnetIo> name indexes matrix </NnetIo> } </Nnet3Eg>

The file does not say which nodes are inputs and which are outputs. A network says it, or the names
do: names of outputs begin with "output".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
from nnet3_descriptors.files import (
    Reader,
    Writer,
    new_writer,
    write_atomically,
)
from nnet3_descriptors.indexes import IndexArray

from nnet3_training.egs.archive import ExampleSource, entries_of, key_bytes
from nnet3_training.egs.elements import (
    expect_example,
    read_indexes,
    read_stored_matrix,
    write_indexes,
    write_stored_matrix,
)
from nnet3_training.errors import ExampleError
from nnet3_training.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    StoredMatrix,
    TrainingExample,
)

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

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
    reader: Reader, is_output: Callable[[str], bool] = is_output_name
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
    ios = []
    try:
        for _ in range(count):
            reader.expect("<NnetIo>")
            ios.append((reader.token(), read_indexes(reader), read_stored_matrix(reader)))
            reader.expect("</NnetIo>")
        reader.expect("</Nnet3Eg>")
        return example_of(ios, is_output)
    except ExampleError as error:
        reader.fail(str(error), at=start)


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
        ExampleError: an example has no key, no input and output, or supervision that is neither
            dense nor sparse.
        FileError: the file cannot be written.
    """
    write_atomically(path, (_entry(each, binary=binary) for each in examples))


def _entry(example: TrainingExample, *, binary: bool) -> bytes:
    return key_bytes(example.key) + example_bytes(example, binary=binary)


def example_bytes(example: TrainingExample, *, binary: bool = True) -> bytes:
    """An example as it stands in an archive, behind its key.

    Raises:
        ExampleError: it is empty, or an output has supervision that is neither dense nor sparse.
    """
    if not example.ios:
        raise ExampleError(f"example '{example.key}' has no input and no output")
    writer = new_writer(binary=binary)
    writer.token("<Nnet3Eg>")
    writer.token("<NumIo>")
    writer.integer(len(example.ios))
    for io in example.ios:
        _write_io(writer, io.name, io.indexes, io.matrix)
    writer.token("</Nnet3Eg>")
    return writer.data


def _write_io(writer: Writer, name: str, indexes: IndexArray, matrix: StoredMatrix) -> None:
    writer.token("<NnetIo>")
    writer.token(name)
    write_indexes(writer, indexes)
    write_stored_matrix(writer, matrix)
    writer.token("</NnetIo>")
