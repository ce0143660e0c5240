"""--profile: what each command of a tool's computations takes, as tables and for trace viewers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nnet3_runtime_cuda import Tracer

PROFILE = click.option(
    "--profile",
    default="",
    metavar="FILE",
    help="Write what each command takes, and the values it meets, to a file for trace viewers "
    "(Perfetto, chrome://tracing), and tables of it to standard error. Not on a GPU.",
)


@contextlib.contextmanager
def profiled(path: str) -> Iterator[Tracer | None]:
    """Gives a tracer, and writes what it saw at the end, also of a run that failed on the way.

    Args:
        path: The file; "" for none, and no tracer.

    Raises:
        OSError: the file cannot be written; said before anything is computed.
    """
    if not path:
        yield None
        return
    from nnet3_runtime_cuda import Tracer, format_trace, trace_events

    tracer, is_new = Tracer(), not os.path.lexists(path)
    with open(path, "a", encoding="utf-8"):
        pass  # so that what cannot be written is said now
    try:
        yield tracer
    finally:
        trace = tracer.trace()
        if trace.runs:
            with open(path, "w", encoding="utf-8") as file:
                file.write(trace_events(trace))
            click.echo(format_trace(trace), err=True, nl=False)
        elif is_new:
            os.remove(path)


def check_overwrites_none(path: str, used: Iterable[str]) -> None:
    """Checks that the file of --profile is none that the tool reads, or writes otherwise.

    Raises:
        click.UsageError: it is.
    """
    if path:
        for name in used:
            if os.path.realpath(name) == os.path.realpath(path):
                raise click.UsageError(f"--profile={path}: the tool reads or writes this file")
