"""Tables that the tools for speech read and write, utterance by utterance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs
import click
import nnet3_speech
import nnet3_tables
from nnet3_descriptors import Nnet3Error

from nnet3_tools import cli, streams

T = TypeVar("T")


def class_options(name: str, helps: Mapping[str, str]) -> cli.Parameter:
    """An option for each field of a class of nnet3-speech that has a text of help.

    The default is the field's. The tool gets each as an argument of the field's name, so that
    `cls(**options)` has them.
    """

    def add(command: click.Command) -> click.Command:
        cls: type[attrs.AttrsInstance] = getattr(nnet3_speech, name)
        for field in attrs.fields(attrs.resolve_types(cls)):
            if field.name not in helps:
                continue
            option, about = f"--{field.name.replace('_', '-')}", helps[field.name]
            kind = click.BOOL if field.type is bool else field.type
            metavar = "BOOL" if field.type is bool else None
            cli.option(option, field.default, about, metavar, shown=True, type=kind)(command)
        return command

    return add


class Tally:
    """Counts utterances, and warns of those that fail.

    Attributes:
        done: Utterances that succeeded.
        failed: Utterances that did not.
    """

    def __init__(self) -> None:
        self.done = self.failed = 0
        self._is_broken = False

    def fail(self, reason: str) -> None:
        """Counts an utterance that Kaldi's tool leaves out."""
        self.failed += 1
        cli.warn(reason)

    def break_off(self, key: str, error: Nnet3Error) -> None:
        """Counts an utterance at which Kaldi's tool would end."""
        self._is_broken = True
        self.fail(f"utterance '{key}': {cli.one_line(error)}" if key else cli.one_line(error))

    @property
    def status(self) -> int:
        """The exit status, as in Kaldi."""
        if self._is_broken:
            return cli.FATAL
        return 0 if self.done else cli.NOTHING_DONE


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
                    cli.warn(f"{cli.one_line(error)}; left out because of the option p")
                else:
                    tally.break_off(key, error)
                continue
            yield key, value
    except nnet3_tables.TableError as error:
        tally.break_off("", error)


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
    streams.check_tables([features_in, *others], out)
    table = each_value(nnet3_tables.read_matrices(features_in), features_in, tally)
    with streams.results(writer(out)) as file:
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


def read_vectors(rspecifier: str) -> Iterator[tuple[str, nnet3_tables.FloatArray]]:
    """The vectors of a table in order, each with its key.

    Raises:
        TableError: the table cannot be read, or has something else.
    """
    for entry in nnet3_tables.read_objects(rspecifier, lambda reader: reader.vector().copy()):
        yield entry.key, entry.value


def read_speakers(rspecifier: str) -> Iterator[tuple[str, list[str]]]:
    """The speakers of a table, and the utterances of each.

    Raises:
        TableError: the table cannot be read, or is not UTF-8.
        click.ClickException: a line is empty, or a speaker has no utterances.
    """
    target = nnet3_tables.Specifier.to_read(rspecifier, is_text=True).target
    for place, words in nnet3_tables.lines(target):
        if not words:
            raise click.ClickException(f"{place}: expected a speaker and utterances, found none")
        speaker, *utterances = words
        if not utterances:
            raise click.ClickException(f"{place}: the speaker '{speaker}' has no utterances")
        yield speaker, utterances
