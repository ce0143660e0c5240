"""The command nnet3-conformance: make a folder of cases, and judge a runtime by it.

The package imports its modules on first use, so that the help appears at once.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click
from nnet3_descriptors import Nnet3Error

import nnet3_conformance

_FOLDER = click.Path(file_okay=False, path_type=Path)
_ONLY = click.option("--only", default="", metavar="TEXT", help="cases whose names contain TEXT")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(nnet3_conformance.__version__)
def cli() -> None:
    """Judge a runtime of nnet3 computations by files with known results."""


@cli.command()
@click.argument("folder", type=_FOLDER)
@_ONLY
@click.option("--references", type=_FOLDER, help="other references than those of this package")
def make(folder: Path, only: str, references: Path | None) -> None:
    """Write cases with Kaldi's results to FOLDER."""
    count = 0
    for case in nnet3_conformance.reference_cases(references, only):
        nnet3_conformance.write_case(folder, case)
        count += 1
    click.echo(f"{count} cases in {folder}")


@cli.command()
@click.argument("folder", type=_FOLDER)
@_ONLY
@click.option("--class", "class_name", metavar="MODULE:CLASS", help="a class of Python")
@click.option(
    "--unsupported",
    multiple=True,
    metavar="MODULE:ERROR",
    help="an error with which the class says that it does not take a case",
)
@click.option("--program", metavar="COMMAND", help="a program; see judge_program")
@click.option("--quiet", is_flag=True, help="show only what did not pass")
def judge(
    folder: Path,
    only: str,
    class_name: str | None,
    unsupported: tuple[str, ...],
    program: str | None,
    quiet: bool,
) -> None:
    """Judge a class or a program by the cases of FOLDER; status 1 if a case failed."""
    if (class_name is None) == (program is None):
        raise click.UsageError("give one of --class and --program")
    cases = nnet3_conformance.read_cases(folder, only)
    if class_name is not None:
        errors = [_named(name) for name in unsupported]
        verdicts = nnet3_conformance.judge_class(cases, _named(class_name), unsupported=errors)
    else:
        verdicts = nnet3_conformance.judge_program(cases, _words(program or ""))
    counts: Counter[str] = Counter()
    for verdict in verdicts:
        counts[verdict.outcome] += 1
        if not quiet or verdict.outcome != "passed":
            click.echo(str(verdict))
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    if counts["failed"]:
        sys.exit(1)


def _words(command: str) -> list[str]:
    """Returns a command line as words.

    Raises:
        ConformanceError: A quotation does not end.
    """
    try:
        return shlex.split(command)
    except ValueError as error:
        raise nnet3_conformance.ConformanceError(f"--program={command}: {error}") from error


def _named(name: str) -> Any:
    """Returns the object that "module:name" stands for.

    Raises:
        ConformanceError: There is no such object.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise nnet3_conformance.ConformanceError(f"expected MODULE:NAME, found '{name}'")
    folder = os.getcwd()  # the module may change to another
    sys.path.insert(0, folder)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise nnet3_conformance.ConformanceError(f"there is no '{name}': {error}") from error
    except Exception as error:  # whatever a runtime in the making raises
        raise nnet3_conformance.ConformanceError(
            f"'{module}' cannot be imported: {error!r}"
        ) from error
    finally:
        sys.path.remove(folder)


def main() -> None:
    """Runs the command; an error prints one line on standard error and gives status 1."""
    try:
        cli(prog_name="nnet3-conformance")
    except (Nnet3Error, OSError) as error:
        click.echo(f"nnet3-conformance: {error}", err=True)
        sys.exit(1)
