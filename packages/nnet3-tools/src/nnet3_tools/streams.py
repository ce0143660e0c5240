"""Files as Kaldi's tools name them: a path, "-", "command |" to read from, "| command" to write to.

Only arguments of a tool are names of this kind: no tool runs a command that a file names.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, TypeVar

import click
import nnet3_descriptors
import nnet3_tables

if TYPE_CHECKING:
    from nnet3_descriptors import AcousticModel, Nnet
    from nnet3_descriptors.files import PathOrFile, Writer

T = TypeVar("T")
W = TypeVar("W", bound="nnet3_tables.ObjectWriter")


def is_stream(name: str) -> bool:
    """Whether a name stands for standard output or a command, as in Kaldi."""
    return name in ("", "-") or nnet3_tables.is_command(name)


@contextlib.contextmanager
def readable(name: str) -> Iterator[PathOrFile]:
    """Gives a source for `read_nnet`: the path itself, standard input, or a command's output.

    The folder of a speech model stands for its network.

    Raises:
        click.ClickException: The name is that of a table, such as ark:FILE.
        TableError: The command fails, or standard input is closed.
        ModelFileError: The data is not a model; the error names the command.
        SpeechError: The name is that of a folder without a network.
    """
    if is_stream(name):
        with nnet3_tables.opened(name) as stream:
            try:
                yield stream
            except nnet3_descriptors.ModelFileError as error:
                if nnet3_tables.is_command(name):
                    error.path = name
                raise
    elif name.partition(":")[0].partition(",")[0] in ("ark", "scp") and not os.path.exists(name):
        raise click.ClickException(
            f"'{name}' is a table; expected a file here (are the arguments in the right order?)"
        )
    elif os.path.isdir(name):
        import nnet3_speech  # not for --help

        yield os.fspath(nnet3_speech.ModelFolder.read(name).network)
    else:
        yield name


def check_tables(rspecifiers: Sequence[str], *wspecifiers: str) -> None:
    """Raises a TableError if an output table would overwrite an input table, or another output."""
    read = [name for each in rspecifiers for name in nnet3_tables.files_of(each)]
    written: dict[str, str] = {}
    for wspecifier in wspecifiers:
        specifier = nnet3_tables.Specifier.to_write(wspecifier)
        specifier.check_overwrites_none(read)
        for name in specifier.files:
            path = os.path.realpath(name)
            if path in written and not (os.path.exists(path) and not os.path.isfile(path)):
                raise nnet3_tables.TableError(
                    f"'{written[path]}' and '{wspecifier}' would both be written to '{name}'"
                )
            written[path] = wspecifier


@contextlib.contextmanager
def writable(name: str) -> Iterator[IO[bytes]]:
    """Opens a file, "-" or "| command" to write, within the context.

    Raises:
        click.ClickException: Standard output cannot be written to.
        BrokenPipeError: Its reader has had enough, as `head`.
        TableError: Another file cannot be written, or the command fails.
    """
    try:
        with nnet3_tables.opened_to_write(name) as stream:
            yield stream
    except nnet3_tables.TableError as error:
        if name != "-":
            raise
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from None
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def results(writer: W) -> Iterator[W]:
    """A table to write, within the context; if nothing is written to it, an old one stays."""
    with writer:
        yield writer
        if writer.is_empty:
            writer.abandon()


def read(reader: Callable[[PathOrFile], T], name: str) -> T:
    """Reads a file that is named in this way; see `readable`."""
    with readable(name) as source:
        return reader(source)


def read_nnet(name: str) -> Nnet:
    """Reads the network of a file; see `readable`."""
    return read(nnet3_descriptors.read_nnet, name)


def write_nnet(nnet: Nnet, name: str, *, binary: bool) -> None:
    """Writes a network to a file; see `writable`."""
    with writable(name) as target:
        nnet3_descriptors.write_nnet(nnet, target, binary=binary)


def write_acoustic_model(model: AcousticModel, name: str, *, binary: bool) -> None:
    """Writes an acoustic model to a file; see `writable`."""
    with writable(name) as target:
        nnet3_descriptors.write_acoustic_model(model, target, binary=binary)


def write_elements(name: str, write: Callable[[Writer], object], *, binary: bool) -> None:
    """Writes a file of Kaldi's elements.

    Args:
        name: The file.
        write: Gives the elements to a writer.
        binary: Whether to write it in binary form; else as text.

    Raises:
        click.ClickException, TableError: It cannot be written; an old file stays.
    """
    from nnet3_descriptors.files import new_writer  # not for --help

    writer = new_writer(binary=binary)
    write(writer)
    with writable(name) as file:
        file.writelines(writer.chunks)


def print_text(text: str) -> None:
    """Writes text to standard output; see `writable`."""
    with writable("-") as stream:
        stream.write(text.encode(errors="surrogateescape"))  # names as the system has them


def read_text(name: str) -> str:
    """Returns the text of a file that is named in this way.

    Raises:
        click.ClickException: It cannot be read, or is not text.
    """
    from nnet3_descriptors.files import read_file  # not for --help

    with readable(name) as source:
        try:
            if isinstance(source, str):
                return read_file(source).decode()
            assert hasattr(source, "read")
            return source.read().decode()
        except UnicodeDecodeError:
            raise click.ClickException(f"{name}: expected UTF-8 text, found other bytes") from None


@contextlib.contextmanager
def understanding(name: str) -> Iterator[None]:
    """A context for parsing the text of a file: errors within name the file.

    Raises:
        click.ClickException: a line of it has a fault.
    """
    try:
        yield
    except (nnet3_descriptors.ConfigError, nnet3_descriptors.DescriptorSyntaxError) as error:
        between = ", " if str(error).startswith("line ") else ": "
        raise click.ClickException(f"{name}{between}{error}") from error


_BEGINNING = b"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>"""
"""How pages of nnet3-report begin."""


def check_page(path: str) -> None:
    """Raises an error if a page cannot be written, or would replace what is no page.

    Raises:
        click.ClickException: the file is another one, or a folder, or the folder for it is missing.
        OSError: the file cannot be read and written.
    """
    from nnet3_descriptors.files import file_to_replace  # not for --help

    if is_stream(path):
        raise click.ClickException(f"expected the name of a file for the page, got '{path}'")
    if path.endswith(os.sep) or os.path.isdir(path):
        raise click.ClickException(f"{path}: expected a file for the page, found a folder's name")
    target = file_to_replace(path)
    if target is None:  # a terminal, a pipe
        return
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise click.ClickException(f"{path}: there is no folder '{folder}' for the page")
    if not os.access(folder, os.W_OK):
        raise click.ClickException(f"{path}: the folder '{folder}' cannot be written to")
    if os.path.exists(target):
        with open(target, "r+b") as file:  # to write, too: who may not do that hears so now
            found = file.read(len(_BEGINNING))
        if found not in (b"", _BEGINNING):
            raise click.ClickException(
                f"{path}: expected a page to replace, or no file, found another file; remove it, "
                "or give another name"
            )
