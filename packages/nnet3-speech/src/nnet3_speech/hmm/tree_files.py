"""Reading and writing trees, binary and text.

A tree is `ContextDependency width position ToPdf node EndContextDependency`, where a node is
`CE pdf`, `TE key size ( node ... )` with NULL for a branch that is not there, or
`SE key [values] { node node }`. In binary, the size of a table is an unsigned integer.
"""

from __future__ import annotations

import os

from nnet3_descriptors.files import (
    PathOrFile,
    Reader,
    Writer,
    leave_behind,
    new_writer,
    open_reader,
)

from nnet3_speech.errors import HmmError
from nnet3_speech.hmm.tree import ContextDependency, EventMap, Leaf, Split, Table

_UNSIGNED = 0xFC
"""The byte before an unsigned integer of four bytes in binary files: -4."""
_MAX_BRANCHES = 1 << 20
_MAX_DEPTH = 400
_NONE = "NULL"
_NODES = (_NONE, "CE", "TE", "SE")


def read_tree(source: PathOrFile) -> ContextDependency:
    """Reads a tree, binary or text.

    Args:
        source: A path, or a file open for reading bytes.

    Raises:
        ModelFileError: the file cannot be read, or holds no tree; the error says where.
    """
    reader = open_reader(source)
    start = reader.position
    reader.expect("ContextDependency")
    width, position = reader.integer(), reader.integer()
    reader.skip_blanks()
    at = reader.position
    token = reader.token()
    if token == "ToLength":  # of old files, and not needed
        _read_node(reader, 0)
        reader.skip_blanks()
        at = reader.position
        token = reader.token()
    if token != "ToPdf":
        reader.fail("unexpected token", at=at, expected="'ToPdf'", found=f"'{token}'")
    root = _read_node(reader, 0)
    if root is None:
        reader.fail("the tree has no root", at=at)
    reader.expect("EndContextDependency")
    leave_behind(source, reader)
    try:
        return ContextDependency(context_width=width, central_position=position, to_pdf=root)
    except HmmError as error:
        reader.fail(str(error), at=start)


def _read_node(reader: Reader, depth: int) -> EventMap | None:
    reader.skip_blanks()
    start = reader.position
    if depth > _MAX_DEPTH:
        reader.fail(f"the tree is more than {_MAX_DEPTH} nodes deep")
    token = reader.token()
    if token not in _NODES:
        reader.fail(
            "this is no node of a tree", at=start, expected=" or ".join(_NODES), found=f"'{token}'"
        )
    match token:
        case "CE":
            return Leaf(reader.integer())
        case "TE":
            key = reader.integer()
            size = _read_size(reader)
            reader.expect("(")
            branches = [_read_node(reader, depth + 1) for _ in range(size)]
            reader.expect(")")
            return Table(key, branches)
        case "SE":
            key, values = reader.integer(), reader.integers()
            reader.expect("{")
            yes, no = _read_node(reader, depth + 1), _read_node(reader, depth + 1)
            if yes is None or no is None:
                reader.fail("a question has only one answer", at=start)
            reader.expect("}")
            return Split(key, values, yes, no)
        case _:
            return None


def _read_size(reader: Reader) -> int:
    """The number of branches; in binary an unsigned integer."""
    if not reader.binary:
        return reader.count("branches", maximum=_MAX_BRANCHES)
    start = reader.position
    data = bytes(reader.data[start : start + 5])
    most = min(_MAX_BRANCHES, reader.remaining // len(b"CE "))
    if len(data) < 5 or data[0] != _UNSIGNED:
        reader.fail("this is no size", expected="an unsigned integer", found=reader.next_bytes())
    size = int.from_bytes(data[1:], "little")
    if size > most:
        reader.fail("impossible number of branches", expected=f"0 to {most}", found=str(size))
    reader.position = start + len(data)
    return size


def write_tree(
    tree: ContextDependency, path: str | os.PathLike[str], *, binary: bool = True
) -> None:
    """Writes a tree to a file of its own, as Kaldi does.

    Raises:
        FileError: the file cannot be written.
    """
    writer = new_writer(binary=binary)
    writer.token("ContextDependency")
    writer.integer(tree.context_width)
    writer.integer(tree.central_position)
    writer.token("ToPdf")
    _write_node(writer, tree.to_pdf)
    writer.token("EndContextDependency")
    writer.store(path)


def _write_node(writer: Writer, node: EventMap | None) -> None:
    match node:
        case None:
            writer.token(_NONE)
        case Leaf(pdf):
            writer.token("CE")
            writer.integer(pdf)
        case Table(key, branches):
            writer.token("TE")
            writer.integer(key)
            if writer.binary:
                writer.raw(bytes([_UNSIGNED]) + len(branches).to_bytes(4, "little"))
            else:
                writer.integer(len(branches))
            writer.token("(")
            for branch in branches:
                _write_node(writer, branch)
            writer.token(")")
            writer.newline()
        case Split(key, values, yes, no):
            writer.token("SE")
            writer.integer(key)
            writer.integers(values)
            writer.token("{")
            _write_node(writer, yes)
            _write_node(writer, no)
            writer.token("}")
            writer.newline()
