"""A tool's main loop: computes something for each utterance of a table of features."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import click
from nnet3_descriptors.errors import Nnet3Error
from nnet3_descriptors.tools.kaldi_command import one_line
from nnet3_descriptors.tools.streams import readable
from threadpoolctl import threadpool_limits

from ..device import machine_for
from ..errors import DeviceError, TableError
from ..model import Model, load
from ..tables import FloatArray, TableWriter, read_matrices
from .progress import Progress

_Entry = tuple[str, Callable[[], FloatArray]]
_Pending = tuple[str, int, Future[FloatArray]]


def gpu_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--use-gpu`, for `load_model`."""
    return click.option(
        "--use-gpu",
        default="no",
        show_default=True,
        type=click.Choice(["yes", "no", "optional", "wait"]),
        help="Whether to run on a CUDA device.",
    )(function)


def threads_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--num-threads`, for `compute_all`."""
    return click.option(
        "--num-threads",
        default=1,
        show_default=True,
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="How many utterances are computed at a time, each by one thread.",
    )(function)


def load_model(name: str, use_gpu: str, progress: Progress, *, capacity: int = 64) -> Model:
    """Loads the model on the device that --use-gpu asks for.

    Args:
        name: A file, "-", or "command |".
        use_gpu: "yes", "no", "optional" (a GPU if there is one) or "wait" (as "yes").
        progress: Hears about what is odd about the model.
        capacity: How many computations are kept.

    Raises:
        ModelFileError: the file cannot be read, or holds no nnet3 model.
        RunError, UnsupportedComponentError: the network cannot be run.
        DeviceError: there is no GPU that can be used, and it was asked for.
    """
    device = "cuda" if _wants_gpu(use_gpu) else "cpu"
    with readable(name) as source:
        model = load(source, device=device, capacity=capacity)
    if model.untrained:
        progress.warn(
            f"{name} is not trained: batch-norm component '{model.untrained[0]}' has no "
            f"statistics ({len(model.untrained)} such components); arbitrary ones are used"
        )
    return model


def _wants_gpu(use_gpu: str) -> bool:
    if use_gpu == "optional":
        try:
            machine_for("cuda")
        except DeviceError:
            return False
    return use_gpu != "no"


def compute_all(
    features: str,
    open_output: Callable[[], TableWriter],
    prepare: Callable[[str, FloatArray], Callable[[], FloatArray]],
    progress: Progress,
    *,
    num_threads: int = 1,
) -> None:
    """Writes what is computed for each utterance of a table, in the order of the table.

    Failures of single utterances, and damage of the feature table, are reported and counted.

    Args:
        features: The table of features.
        open_output: Opens the table to write.
        prepare: Called with an utterance and its features; returns the function that computes the
            result. That function runs in another thread.
        progress: Hears how each utterance went.
        num_threads: How many utterances are computed at a time.

    Raises:
        TableError: the features cannot be opened or the output cannot be written.
    """
    table = read_matrices(features)
    # Reads before it writes: without features no output is created.
    first = list(itertools.islice(table, 1))
    pending: deque[_Pending] = deque()
    with (
        open_output() as writer,
        # Utterances are computed side by side; threads within one product would only wait for
        # each other.
        threadpool_limits(limits=1, user_api="blas"),
        _pool(num_threads) as pool,
    ):
        for utterance, read in itertools.chain(first, _until_damaged(table, progress)):
            try:
                frames = read()
                work = prepare(utterance, frames)
            except Nnet3Error as error:
                progress.fail(utterance, one_line(error))
                continue
            pending.append((utterance, len(frames), pool.submit(work)))
            if len(pending) > num_threads:
                _finish(pending.popleft(), writer, progress)
        while pending:
            _finish(pending.popleft(), writer, progress)


def _finish(pending: _Pending, writer: TableWriter, progress: Progress) -> None:
    utterance, num_frames, result = pending
    try:
        array = result.result()
    except Nnet3Error as error:
        progress.fail(utterance, one_line(error))
    else:
        writer.write(utterance, array)
        progress.succeed(num_frames)


@contextlib.contextmanager
def _pool(num_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that give up what they have not begun when something fails."""
    pool = ThreadPoolExecutor(num_threads)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _until_damaged(table: Iterator[_Entry], progress: Progress) -> Iterator[_Entry]:
    """The entries of a table; damage ends it and counts as one failure."""
    try:
        yield from table
    except TableError as error:
        progress.failed += 1
        progress.warn(one_line(error))
