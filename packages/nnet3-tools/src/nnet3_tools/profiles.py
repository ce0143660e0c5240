"""--profile: the cost of each command of a tool's computations, as tables and for trace viewers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from nnet3_tools.kaldi_command import say

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
    """A context with a tracer; writes the trace at the end, even after an error.

    Args:
        path: The file; "" for none, and no tracer.

    Raises:
        TableError: the file cannot be written; raised before anything is computed.
    """
    if not path:
        yield None
        return
    import nnet3_tables
    from nnet3_runtime_cuda import Tracer, format_trace, trace_events

    tracer, failure = Tracer(), None
    with contextlib.suppress(_NothingTracedError), nnet3_tables.opened_to_write(path) as file:
        try:
            yield tracer
        except BaseException as error:
            failure = error
        trace = tracer.trace()
        if not trace.runs:
            raise _NothingTracedError
        file.write(trace_events(trace).encode())
        say(format_trace(trace).rstrip("\n"))
    if failure is not None:
        raise failure


class _NothingTracedError(Exception):
    """Nothing was computed, so no file is written."""


def check_overwrites_none(path: str, used: Iterable[str]) -> None:
    """Checks that the tool does not read the file of --profile, or write it for another option.

    Raises:
        click.UsageError: it is.
    """
    if path:
        for name in used:
            if os.path.realpath(name) == os.path.realpath(path):
                raise click.UsageError(f"--profile={path}: the tool reads or writes this file")
