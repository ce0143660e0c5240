"""Files as Kaldi's tools name them: a path, "-", "command |" to read from, "| command" to write to.

Only arguments of a tool are names of this kind: no tool runs a command that a file names.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, TextIO

import click
import nnet3_descriptors
import nnet3_tables

if TYPE_CHECKING:
    import subprocess

    from nnet3_descriptors.files import PathOrFile

_STANDARD = ("", "-")


@contextlib.contextmanager
def readable(name: str) -> Iterator[PathOrFile]:
    """Gives a source for `read_nnet`: the path itself, standard input, or a command's output.

    Raises:
        click.ClickException: The command fails, standard input is closed, or the name is that of a
            table, such as ark:FILE.
        ModelFileError: The data is not a model; the error names the command.
    """
    if name in _STANDARD:
        yield _open(sys.stdin, "input").buffer
    elif name.rstrip().endswith("|"):
        command = name.rstrip().removesuffix("|")
        import subprocess

        with subprocess.Popen(nnet3_tables.shell(command), stdout=subprocess.PIPE) as process:
            try:
                yield _pipe(process.stdout)
            except nnet3_descriptors.ModelFileError as error:
                _pipe(process.stdout).close()
                if not nnet3_tables.is_cut_off(process.wait()):
                    _check(process, command)  # which may be why there is no model
                error.path = name
                raise
            except BaseException:
                process.terminate()  # nobody will read what it may yet write
                raise
        _check(process, command)
    elif name.partition(":")[0].partition(",")[0] in ("ark", "scp") and not os.path.exists(name):
        raise click.ClickException(
            f"'{name}' is a table; expected a file here (are the arguments in the right order?)"
        )
    else:
        yield name


@contextlib.contextmanager
def writable(name: str) -> Iterator[PathOrFile]:
    """Gives a target for `write_nnet`: the path itself, standard output, or a command's input.

    Raises:
        click.ClickException: The command fails or leaves something unread, or standard output
            cannot be written to.
    """
    if name in _STANDARD:
        with _standard_output() as stream:
            yield stream
    elif name.lstrip().startswith("|"):
        import subprocess

        command = name.lstrip().removeprefix("|")
        try:
            with subprocess.Popen(nnet3_tables.shell(command), stdin=subprocess.PIPE) as process:
                yield _pipe(process.stdin)
        except BrokenPipeError as error:
            _check(process, command)  # which may be why it did not read on
            raise click.ClickException(
                f"the command '{command.strip()}' ended before it had read everything"
            ) from error
        _check(process, command)
    else:
        yield name


def print_text(text: str) -> None:
    """Writes text to standard output.

    Raises:
        click.ClickException: Standard output cannot be written to.
    """
    with _standard_output() as stream:
        stream.write(text.encode())


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    stream = _open(sys.stdout, "output").buffer
    try:
        yield stream
        stream.flush()
    except BrokenPipeError:  # as under `head`: the reader has what it wanted
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write '-': {error.strerror}") from error


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


def _open(stream: TextIO | None, what: str) -> TextIO:
    if stream is None:  # which is what Python makes of a descriptor that was closed before
        raise click.ClickException(f"cannot use '-': standard {what} is closed")
    return stream


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _check(process: subprocess.Popen[bytes], command: str) -> None:
    if process.returncode != 0:
        status = process.returncode
        raise click.ClickException(f"the command '{command.strip()}' failed with status {status}")


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    import shutil

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None
