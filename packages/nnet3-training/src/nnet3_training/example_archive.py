"""Reading the training examples that Kaldi's nnet3-get-egs writes.

Format (`NnetExample` in Kaldi's nnet3): an archive of a key, a blank, and

    <Nnet3Eg> <NumIo> count { <NnetIo> name <I1V> indexes matrix </NnetIo> } </Nnet3Eg>

in binary. An index is one byte, the difference of its t to the one before (n and x being the
same), or 127 and n, t and x. The matrix may be full, compressed, or sparse.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.files import BinaryReader, file_error, mapped, open_file
from nnet3_descriptors.indexes import IndexArray, is_int32

from nnet3_training.errors import ExampleError
from nnet3_training.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    TrainingExample,
)

_MAX_ROWS = 1 << 24
_WHOLE_INDEX = 127
_LARGEST_STEP = 124
_BINARY = b"\0B"


def read_examples(path: str | os.PathLike[str], nnet: Nnet) -> Iterator[TrainingExample]:
    """The examples of a binary archive, in its order.

    A regular file is mapped into memory. Anything else, as a named pipe, is read to its end before
    the first example: it has to fit in memory, and nothing else bounds it.

    Args:
        path: A file.
        nnet: The network that is to be trained; it tells inputs from outputs.

    Raises:
        FileError: the file cannot be read; of one that is not there it is a FileNotFoundError.
        ModelFileError: it is no archive of training examples; the error says where.
    """
    outputs = frozenset(node.name for node in nnet.output_nodes)
    with open_file(path) as file:
        try:
            contents = mapped(file)
            if contents is None:
                contents = memoryview(file.read())
        except OSError as error:
            raise file_error(error, "read", path) from error
        # The arrays of an example are copies: nothing points into the map when it is released.
        with contents as data:
            yield from _examples(data, os.fspath(path), outputs)


def _examples(
    data: memoryview, path: str, output_names: frozenset[str]
) -> Iterator[TrainingExample]:
    reader = BinaryReader(data, path)
    try:
        while reader.remaining:
            key = reader.token()
            if not reader.next_is(_BINARY):
                reader.fail(
                    f"example '{key}' is not binary",
                    expected="the mark of binary data",
                    found=reader.next_bytes(),
                )
            reader.position += len(_BINARY)
            yield _read_example(reader, key, output_names)
    finally:
        reader.data = memoryview(b"")


def _read_example(reader: BinaryReader, key: str, output_names: frozenset[str]) -> TrainingExample:
    start = reader.position
    reader.expect("<Nnet3Eg>")
    reader.expect("<NumIo>")
    count = reader.count("inputs and outputs", maximum=1 << 16)
    inputs, outputs = [], []
    try:
        for _ in range(count):
            reader.expect("<NnetIo>")
            name = reader.token()
            indexes = read_indexes(reader)
            if name in output_names:
                supervision = _read_supervision(reader)
                outputs.append(ExampleOutput(name=name, indexes=indexes, supervision=supervision))
            else:
                values = np.array(reader.matrix())
                inputs.append(ExampleInput(name=name, indexes=indexes, values=values))
            reader.expect("</NnetIo>")
        reader.expect("</Nnet3Eg>")
        return TrainingExample(key=key, inputs=tuple(inputs), outputs=tuple(outputs))
    except ExampleError as error:
        reader.fail(f"example '{key}': {error}", at=start)


def read_indexes(reader: BinaryReader) -> IndexArray:
    """Reads the indexes of an input or output.

    Raises:
        ModelFileError: what stands there is no list of indexes.
    """
    reader.expect("<I1V>")
    count = reader.count("indexes", maximum=_MAX_ROWS)
    indexes = np.zeros((count, 3), dtype=np.int32)
    n = t = x = 0
    for row in range(count):
        if not reader.remaining:
            reader.fail("the file ends within indexes")
        byte = reader.data[reader.position]
        step = byte - 256 if byte > _WHOLE_INDEX else byte
        reader.position += 1
        if step == _WHOLE_INDEX:
            n, t, x = reader.integer(), reader.integer(), reader.integer()
        elif abs(step) <= _LARGEST_STEP:
            t += step
            if not is_int32(t):
                reader.fail(f"t = {t} does not fit in 32 bits", at=reader.position - 1)
        else:
            reader.fail("this is no index", at=reader.position - 1, found=str(step))
        indexes[row] = n, t, x
    return indexes


def _read_supervision(reader: BinaryReader) -> DenseTargets | SparsePosteriors:
    if not reader.next_is(b"SM "):
        return DenseTargets(values=np.array(reader.matrix()))
    reader.expect("SM")
    rows = reader.count("rows", maximum=_MAX_ROWS)
    dims, splits = {0}, [0]
    entries: list[tuple[int, float]] = []
    for _ in range(rows):
        reader.expect("SV")
        dims.add(reader.integer())
        for _ in range(reader.count("elements", maximum=_MAX_ROWS)):
            entries.append((reader.integer(), reader.real()))
        splits.append(len(entries))
    pairs: Any = list(zip(*entries, strict=True)) or [(), ()]
    return SparsePosteriors(dim=max(dims), splits=splits, classes=pairs[0], weights=pairs[1])
