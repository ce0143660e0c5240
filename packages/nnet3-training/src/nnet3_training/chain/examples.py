"""Examples of 'chain' models: Kaldi's archives of them, as nnet3-chain-get-egs makes them; changes.

An archive has for each example a key, a blank, and (in binary, behind the bytes 0 and "B")

    <Nnet3ChainEg> <NumInputs> count { <NnetIo> name indexes matrix </NnetIo> }
    <NumOutputs> count { <NnetChainSup> name indexes supervision <DW2> vector </NnetChainSup> }
    </Nnet3ChainEg>

Older examples have `<DW>` and the weights of frames as bytes, or no weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import BinaryReader, Reader, new_writer, write_atomically

from nnet3_training.chain.supervision import ChainSupervision, read_supervision, write_supervision
from nnet3_training.egs import files
from nnet3_training.egs.examples import ExampleInput, ExampleOutput, TrainingExample
from nnet3_training.errors import ExampleError

_MAX_IOS: Final = 1 << 16


def read_chain_examples(source: files.ExampleSource) -> Iterator[TrainingExample]:
    """The examples of an archive, binary or text, in its order.

    The supervision of an output is a `ChainSupervision`. Only the example at hand is held in
    memory.

    Args:
        source: A path, or a file that is open for reading bytes.

    Raises:
        FileError: the file cannot be read; if it does not exist, the error is a FileNotFoundError.
        ModelFileError: it is not an archive of such examples; the error says where.
    """
    for entry in files.entries_of(source, read_chain_example):
        yield attrs.evolve(entry.value, key=entry.key)


def read_chain_example(reader: Reader) -> TrainingExample:
    """Reads one example, from its opening token on; it has no key.

    Raises:
        ModelFileError: the file holds something else there.
    """
    start = reader.position
    files.expect_example(reader, "<Nnet3ChainEg>")
    try:
        reader.expect("<NumInputs>")
        count = reader.count("inputs", maximum=_MAX_IOS)
        ios = [files.read_io(reader) for _ in range(count)]
        inputs = [
            ExampleInput(name=name, indexes=rows, values=values) for name, rows, values in ios
        ]
        reader.expect("<NumOutputs>")
        count = reader.count("outputs", maximum=_MAX_IOS)
        outputs = [_read_output(reader) for _ in range(count)]
        reader.expect("</Nnet3ChainEg>")
        return TrainingExample(inputs=inputs, outputs=outputs)
    except ExampleError as error:
        reader.fail(str(error), at=start)


def _read_output(reader: Reader) -> ExampleOutput:
    reader.expect("<NnetChainSup>")
    name = reader.token()
    indexes = files.read_indexes(reader)
    supervision = read_supervision(reader)
    reader.skip_blanks()
    at = reader.position
    token = reader.token()
    if token in ("<DW>", "<DW2>"):
        is_bytes = token == "<DW>" and isinstance(reader, BinaryReader)
        weights = _read_byte_weights(reader) if is_bytes else np.array(reader.vector())
        supervision = attrs.evolve(supervision, deriv_weights=weights)
        reader.expect("</NnetChainSup>")
    elif token != "</NnetChainSup>":
        expected = "'<DW2>', '<DW>' or '</NnetChainSup>'"
        reader.fail("unexpected token", at=at, expected=expected, found=f"'{token}'")
    return ExampleOutput(name=name, indexes=indexes, supervision=supervision)


def _read_byte_weights(reader: Reader) -> npt.NDArray[np.float32]:
    """The weights of frames as a vector of bytes, 255 for 1."""
    start = reader.position
    if not reader.next_is(b"\x01"):
        reader.fail("these are no bytes", expected="a vector of bytes", found=reader.next_bytes())
    size = int.from_bytes(reader.data[start + 1 : start + 5], "little")
    begin, end = start + 5, start + 5 + size
    if end > len(reader.data) or begin > len(reader.data):
        reader.fail("the file ends too early", expected=f"{size} bytes")
    reader.position = end
    return np.frombuffer(reader.data[begin:end], dtype=np.uint8).astype(np.float32) / 255.0


# ---- writing ----


def write_chain_examples(
    examples: Iterable[TrainingExample], path: str | os.PathLike[str], *, binary: bool = True
) -> None:
    """Writes an archive; the keys are those of the examples.

    Features are written in the form that they have; text has no compressed form.

    Raises:
        ExampleError: an example has no key, an output without a `ChainSupervision`, or a name or
            matrix that a reader does not take.
        FileError: the file cannot be written.
    """
    write_atomically(
        path, (files.key_bytes(each.key) + example_bytes(each, binary=binary) for each in examples)
    )


def example_bytes(example: TrainingExample, *, binary: bool = True) -> bytes:
    """An example as it stands in an archive, behind its key.

    Raises:
        ExampleError: an output has another supervision than a `ChainSupervision`, or a name or
            matrix is one that a reader does not take.
    """
    writer = new_writer(binary=binary)
    writer.token("<Nnet3ChainEg>")
    writer.token("<NumInputs>")
    writer.integer(len(example.inputs))
    writer.newline()
    for io in example.inputs:
        files.write_io(writer, io)
        writer.newline()
    writer.token("<NumOutputs>")
    writer.integer(len(example.outputs))
    writer.newline()
    for output in example.outputs:
        supervision = output.supervision
        if not isinstance(supervision, ChainSupervision):
            raise ExampleError(
                f"output '{output.name}': expected a ChainSupervision, found "
                f"{type(supervision).__name__}"
            )
        writer.token("<NnetChainSup>")
        files.write_name(writer, output.name)
        files.write_indexes(writer, output.indexes)
        write_supervision(writer, supervision)
        writer.token("<DW2>")
        writer.vector(supervision.deriv_weights)
        writer.token("</NnetChainSup>")
        writer.newline()
    writer.token("</Nnet3ChainEg>")
    return writer.data


NOT_COMPUTED = "__"
"""The beginning of names of inputs that no network reads."""

LWF_POSTERIORS = f"{NOT_COMPUTED}LWF-posteriors"
"""The input of an example with posteriors of another model (learning without forgetting)."""


def with_posteriors(
    example: TrainingExample, posteriors: npt.NDArray[np.float32]
) -> TrainingExample:
    """The example with posteriors of another model as a further input, as Kaldi's LWF reads them.

    Args:
        example: The example.
        posteriors: (rows, pdfs), for each row of its output. Their times are 0, 3, 6, ..., as in
            Kaldi, whatever the step of the output.
    """
    added = ExampleInput.from_sequences(LWF_POSTERIORS, [posteriors], t_step=3)
    return attrs.evolve(example, inputs=[*example.inputs, added])
