"""Options that several tools have, and those of Kaldi that change nothing here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from nnet3_tools import cli

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_runtime_cuda import Tracer
    from nnet3_training.workers import Workers

_OPTIMIZER = "the optimizer"

_OF_ALL_COMPUTATIONS = {
    "--computation.debug": "checks",
    "--debug-computation": "checks",
    "--cuda-cache-memory": "GPUs",
    "--cuda-memory-proportion": "GPUs",
    "--cuda-use-tensor-cores": "GPUs",
    "--cuda-use-tf32-compute": "GPUs",
    "--optimization.allocate-from-other": _OPTIMIZER,
    "--optimization.allow-left-merge": _OPTIMIZER,
    "--optimization.allow-right-merge": _OPTIMIZER,
    "--optimization.backprop-in-place": _OPTIMIZER,
    "--optimization.consolidate-model-update": _OPTIMIZER,
    "--optimization.convert-addition": _OPTIMIZER,
    "--optimization.extend-matrices": _OPTIMIZER,
    "--optimization.initialize-undefined": _OPTIMIZER,
    # The times of derivatives matter to tools that train, which declare these options themselves.
    "--optimization.max-deriv-time": _OPTIMIZER,
    "--optimization.max-deriv-time-relative": _OPTIMIZER,
    "--optimization.memory-compression-level": _OPTIMIZER,
    "--optimization.min-deriv-time": _OPTIMIZER,
    "--optimization.move-sizing-commands": _OPTIMIZER,
    "--optimization.optimize": _OPTIMIZER,
    "--optimization.optimize-row-ops": _OPTIMIZER,
    "--optimization.propagate-in-place": _OPTIMIZER,
    "--optimization.remove-assignments": _OPTIMIZER,
    "--optimization.snip-row-ops": _OPTIMIZER,
    "--optimization.split-row-ops": _OPTIMIZER,
}

OF_OBJECTIVES = _OF_ALL_COMPUTATIONS | {
    "--compiler.use-shortcut": "the compiler",
    "--compiler.cache-capacity": "the compiler",
    "--read-cache": "the compiler",
    "--write-cache": "the compiler",
    "--binary-write-cache": "the compiler",
    "--numerator-graph-threads": "threads",
}
"""The options of tools that compute objectives on examples."""

OF_UTTERANCES = _OF_ALL_COMPUTATIONS | {
    "--use-shortcut": "the compiler",
    "--cached-compiler-in": "the compiler",
    "--cached-compiler-out": "the compiler",
}
"""The options of tools that run a model over features."""


def unused(*names: str) -> dict[str, str]:
    """Options that Kaldi's tool takes, and does not use."""
    return dict.fromkeys(names, "not used by Kaldi's tool, either")


BINARY = cli.boolean_option("--binary", "Write the network in binary form.", default=True)

BINARY_MODEL = cli.boolean_option("--binary", "Write the model in binary form.", default=True)


def test_modes(*, batchnorm: bool) -> tuple[cli.Parameter, cli.Parameter]:
    """Options for the test mode of batch-norm, with this default, and of dropout.

    They are keyword arguments of `in_test_mode`, and of `nnet3_training.recipes.combine`.
    """
    return (
        cli.boolean_option(
            "--batchnorm-test-mode", "Use batch-norm with its statistics.", default=batchnorm
        ),
        cli.boolean_option(
            "--dropout-test-mode", "Use dropout in test mode: drop nothing.", default=True
        ),
    )


def in_test_mode(nnet: Nnet, *, batchnorm_test_mode: bool, dropout_test_mode: bool) -> Nnet:
    """The network with the test modes that the options ask for."""
    import nnet3_training  # not for --help

    return nnet3_training.in_test_mode(
        nnet, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode
    )


PRINT_ARGS = cli.boolean_option(
    "--print-args", "Write the command line to standard error first.", default=True, shown=True
)

GPU = cli.option(
    "--use-gpu",
    "no",
    "Whether to run on a CUDA device.",
    shown=True,
    type=click.Choice(("yes", "no", "optional", "wait")),
)


def device(use_gpu: str) -> str:
    """The device of a tool that does not search for a GPU; "optional" means the processor."""
    return "cuda" if use_gpu in ("yes", "wait") else "cpu"


CACHE_VARIABLE = "NNET3_CACHE_DIR"


def _choose_cache(context: click.Context, _: click.Parameter, folder: str | None) -> None:
    """Sets the environment variable for this process, and for those that it starts."""
    if folder is None:
        return
    before = os.environ.get(CACHE_VARIABLE)

    def restore() -> None:
        os.environ.pop(CACHE_VARIABLE)
        if before is not None:
            os.environ[CACHE_VARIABLE] = before

    os.environ[CACHE_VARIABLE] = folder and os.path.abspath(folder)
    context.call_on_close(restore)


CACHE_DIR = cli.option(
    "--cache-dir",
    None,
    "Keeps compiled computations for later runs; nothing after the '=' for none.  [default: "
    f"that of the environment variable {CACHE_VARIABLE}, or nnet3 in the user's cache folder]",
    "FOLDER",
    expose_value=False,
    callback=_choose_cache,
)

JOBS = cli.option(
    "--jobs",
    0,
    "Processes that compute shards of the table, each entry by itself; 0 for none.",
    "COUNT",
    least=0,
    shown=True,
)

DASK = cli.option(
    "--dask",
    None,
    "Work on the Dask cluster with this scheduler; 'local' for one of --jobs processes.",
    "ADDRESS",
)


@contextlib.contextmanager
def chosen_workers(jobs: int, dask: str | None) -> Iterator[Workers]:
    """A context with `jobs` processes, or with a Dask cluster.

    Raises:
        click.ClickException: Dask is not installed, or no scheduler answers.
    """
    # Imported here: most runs of most tools need no workers.
    from nnet3_training.workers import DaskWorkers, Processes

    if dask is None:
        with Processes(jobs) as processes:
            yield processes
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise click.ClickException(
            f"--dask needs Dask's scheduler: pip install distributed ({error})"
        ) from error
    with contextlib.ExitStack() as stack:
        address = dask
        if dask == "local":
            address = stack.enter_context(
                LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            )
        try:
            client = stack.enter_context(Client(address))
        except (OSError, ValueError) as error:
            raise click.ClickException(
                f"--dask: cannot reach a scheduler at '{dask}': {error}"
            ) from error
        yield DaskWorkers(client)


PROFILE = cli.option(
    "--profile",
    "",
    "Write what each command takes, and the values it meets, to a file for trace viewers "
    "(Perfetto, chrome://tracing), and tables of it to standard error. Not on a GPU.",
    "FILE",
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
        cli.say(format_trace(trace).rstrip("\n"))
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
