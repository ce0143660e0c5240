"""nnet3-get-egs-simple: makes an example of each key of tables of matrices."""

from __future__ import annotations

import click
import nnet3_tables

from nnet3_tools.kaldi_command import KaldiCommand, NothingDoneError, run_tool, warn

NAME = "nnet3-get-egs-simple"


@click.command(cls=KaldiCommand)
@click.argument("tables", metavar="NAME=MATRICES-RSPECIFIER...", nargs=-1, required=True)
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
def command(tables: tuple[str, ...], egs_out: str) -> None:
    """Make an example of whole matrices for each key of the first table.

    NAME is the input or output that the rows of a matrix belong to, for t = 0, 1, ... Names of
    outputs begin with "output". Of several tables, all but the first may have further keys.
    """
    from nnet3_training.egs import example_of_matrices, read_stored_matrix

    from nnet3_tools.egs.forms import NNET3, check_files

    (first, first_in), *others = map(_split, tables)
    for table in (first_in, *(each for _, each in others)):
        check_files(table, egs_out)
    lookups = [
        (name, nnet3_tables.ObjectLookup(table, read_stored_matrix)) for name, table in others
    ]
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in nnet3_tables.read_objects(first_in, read_stored_matrix):
            matrices = [(first, entry.value)]
            for name, lookup in lookups:
                matrix = lookup.take(entry.key)
                if matrix is None:
                    _warn(f"Could not find input for key {entry.key} for io-name={name}")
                    failed += 1
                    break
                matrices.append((name, matrix))
            else:
                NNET3.write(writer, example_of_matrices(entry.key, matrices))
                written += 1
        if failed:
            _warn(f"{failed} utterances had errors and could not be processed.")
        if not written:
            raise NothingDoneError(f"no example was made of the matrices of '{first_in}'")


def _split(argument: str) -> tuple[str, str]:
    """The name and the table of an argument."""
    name, equals, table = argument.partition("=")
    if not equals or not name or name.split() != [name]:
        raise click.UsageError(f"expected NAME=RSPECIFIER, found '{argument}'")
    return name, table


def _warn(line: str) -> None:
    warn(NAME, line)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
