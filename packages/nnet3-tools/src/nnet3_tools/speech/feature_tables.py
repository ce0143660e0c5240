"""The common parts of tools that read a table of recordings or features and write another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import attrs
import nnet3_tables
from nnet3_descriptors import Nnet3Error

from nnet3_tools.kaldi_command import FATAL, NOTHING_DONE, one_line, warn

T = TypeVar("T")


@attrs.define
class Tally:
    """Counts utterances, and warns of those that fail.

    Attributes:
        tool: The name of the tool.
        done: Utterances that succeeded.
        failed: Utterances that did not.
    """

    tool: str
    done: int = 0
    failed: int = 0
    _is_broken: bool = False

    def fail(self, reason: str) -> None:
        """Counts an utterance that Kaldi's tool leaves out."""
        self.failed += 1
        warn(self.tool, reason)

    def break_off(self, key: str, error: Nnet3Error) -> None:
        """Counts an utterance at which Kaldi's tool would end."""
        self._is_broken = True
        self.fail(f"utterance '{key}': {one_line(error)}" if key else one_line(error))

    @property
    def status(self) -> int:
        """The exit status, as in Kaldi."""
        if self._is_broken:
            return FATAL
        return 0 if self.done else NOTHING_DONE


def each_value(
    table: Iterator[tuple[str, Callable[[], T]]], specifier: str, tally: Tally
) -> Iterator[tuple[str, T]]:
    """The values of a table that can be read; damage of the table ends it, and is counted.

    The first entry is looked for at once, so that a table that is missing is an error before
    anything is written.

    Args:
        table: For each entry its key, and a function that reads its value.
        specifier: The name of the table. With its option `p`, what cannot be read is left out.
        tally: Counts what cannot be read.

    Raises:
        TableError: the table cannot be opened.
    """
    first = list(itertools.islice(table, 1))
    is_permissive = nnet3_tables.Specifier.to_read(specifier).is_permissive
    return _readable(itertools.chain(first, table), tally, is_permissive)


def _readable(
    table: Iterator[tuple[str, Callable[[], T]]], tally: Tally, is_permissive: bool
) -> Iterator[tuple[str, T]]:
    try:
        for key, read in table:
            try:
                value = read()
            except Nnet3Error as error:
                if is_permissive:
                    warn(tally.tool, f"{one_line(error)}; left out because of the option p")
                else:
                    tally.break_off(key, error)
                continue
            yield key, value
    except nnet3_tables.TableError as error:
        tally.break_off("", error)


def check_output(output: str, *tables: str) -> None:
    """Raises a TableError if a table to write would overwrite a file of tables that are read."""
    files = itertools.chain.from_iterable(map(nnet3_tables.files_of, tables))
    nnet3_tables.Specifier.to_write(output).check_overwrites_none(files)


def write_each(
    features_in: str,
    out: str,
    writer: Callable[[str], nnet3_tables.TableWriter],
    compute: Callable[[str, nnet3_tables.FloatArray], nnet3_tables.FloatArray | None],
    tally: Tally,
    *others: str,
) -> None:
    """Writes what a function makes of the features of each utterance.

    Args:
        features_in: The table of features.
        out: The table to write.
        writer: Opens it.
        compute: Gets an utterance and its features, (frames, dim) with a frame or more; returns
            None if there is nothing to write.
        tally: Counts the utterances. Those without frames fail.
        others: Other tables that are read meanwhile.

    Raises:
        TableError: the features cannot be opened, or the output cannot be written or is one of the
            files that are read.
    """
    check_output(out, features_in, *others)
    table = each_value(nnet3_tables.read_matrices(features_in), features_in, tally)
    with writer(out) as file:
        for key, frames in table:
            if not len(frames):
                tally.fail(f"Empty feature matrix for utterance {key}")
                continue
            try:
                result = compute(key, frames)
            except Nnet3Error as error:
                tally.break_off(key, error)
                continue
            if result is not None:
                file.write(key, result)
