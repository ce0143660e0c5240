"""Reading and writing chain supervisions, binary and text.

A supervision is

    <Supervision> <Weight> w <NumSequences> n <FramesPerSeq> f <LabelDim> d <End2End> F
    fst </Supervision>

or `<End2End> T <Fsts> fst ... </Fsts>`, with `<AlignmentPdfs>` and integers before the end if there
are such. In binary the FSTs are compact acceptors.
"""

from __future__ import annotations

import os

from nnet3_descriptors.files import (
    BinaryReader,
    PathOrFile,
    Reader,
    Writer,
    leave_behind,
    new_writer,
    open_reader,
    write_atomically,
)

from nnet3_training.chain.fsts.files import (
    compact_bytes,
    read_binary_fst,
    read_text_fst,
    write_text_fst,
)
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError

_MAX_SEQUENCES = 1 << 20


def read_chain_supervision(source: PathOrFile) -> ChainSupervision:
    """Reads one supervision, binary or text.

    Args:
        source: A path, `path:offset` (as in Kaldi's scp files), or a file open for reading bytes.

    Raises:
        ModelFileError: the file cannot be read, or holds something else; the error says where.
    """
    reader = open_reader(source)
    supervision = read_supervision(reader)
    leave_behind(source, reader)
    return supervision


def write_chain_supervision(
    supervision: ChainSupervision, path: str | os.PathLike[str], *, binary: bool = True
) -> None:
    """Writes one supervision to a file of its own.

    Raises:
        FileError: the file cannot be written.
    """
    write_atomically(path, [supervision_bytes(supervision, binary=binary)])


def supervision_bytes(supervision: ChainSupervision, *, binary: bool = True) -> bytes:
    """A supervision as it stands in a table, behind its key."""
    writer = new_writer(binary=binary)
    write_supervision(writer, supervision)
    return writer.data


def read_supervision(reader: Reader) -> ChainSupervision:
    """Reads a supervision, from its opening token on.

    Raises:
        ModelFileError: the file holds something else there.
    """
    reader.skip_blanks()
    start = reader.position
    reader.expect("<Supervision>")
    reader.expect("<Weight>")
    weight = reader.real()
    reader.expect("<NumSequences>")
    num_sequences = reader.count("sequences", maximum=_MAX_SEQUENCES)
    reader.expect("<FramesPerSeq>")
    frames_per_sequence = reader.integer()
    reader.expect("<LabelDim>")
    label_dim = reader.integer()
    reader.expect("<End2End>")
    fst, e2e_fsts = None, []
    if reader.boolean():
        reader.expect("<Fsts>")
        e2e_fsts = [_read_fst(reader) for _ in range(num_sequences)]
        reader.expect("</Fsts>")
    else:
        fst = _read_fst(reader)
    reader.skip_blanks()
    alignment_pdfs: list[int] = []
    if reader.next_is(b"<A"):
        reader.expect("<AlignmentPdfs>")
        alignment_pdfs = reader.integers()
    reader.expect("</Supervision>")
    try:
        return ChainSupervision(
            weight=weight,
            num_sequences=num_sequences,
            frames_per_sequence=frames_per_sequence,
            label_dim=label_dim,
            fst=fst,
            e2e_fsts=e2e_fsts,
            alignment_pdfs=alignment_pdfs,
        )
    except ExampleError as error:
        reader.fail(str(error), at=start)


def _read_fst(reader: Reader) -> Fst:
    if isinstance(reader, BinaryReader):
        return read_binary_fst(reader)
    # The blank has ended the line of text before the FST.
    while reader.next_is(b" "):
        reader.position += 1
    return read_text_fst(reader)


def write_supervision(writer: Writer, supervision: ChainSupervision) -> None:
    """Writes a supervision."""
    for token, number in (
        ("<Weight>", supervision.weight),
        ("<NumSequences>", supervision.num_sequences),
        ("<FramesPerSeq>", supervision.frames_per_sequence),
        ("<LabelDim>", supervision.label_dim),
    ):
        if token == "<Weight>":
            writer.token("<Supervision>")
        writer.token(token)
        if isinstance(number, int):
            writer.integer(number)
        else:
            writer.real(number)
    writer.token("<End2End>")
    writer.boolean(supervision.fst is None)
    if supervision.fst is not None:
        _write_fst(writer, supervision.fst)
    else:
        writer.token("<Fsts>")
        for fst in supervision.e2e_fsts:
            _write_fst(writer, fst)
        writer.token("</Fsts>")
    if supervision.alignment_pdfs:
        writer.token("<AlignmentPdfs>")
        writer.integers(supervision.alignment_pdfs)
    writer.token("</Supervision>")


def _write_fst(writer: Writer, fst: Fst) -> None:
    if writer.binary:
        writer.raw(compact_bytes(fst))
    else:
        write_text_fst(writer, fst)
