"""A tool's main loop: computes something for each utterance of a table of features."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from nnet3_descriptors.errors import Nnet3Error
from nnet3_descriptors.tools.kaldi_command import one_line

from ..errors import TableError
from ..tables import FloatArray, TableWriter, read_matrices
from .progress import Progress

_Entry = tuple[str, Callable[[], FloatArray]]
_Pending = tuple[str, int, Future[FloatArray]]


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
    with open_output() as writer, _pool(num_threads) as pool:
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
