"""A tool's main loop: computes something for each utterance of a table of features.

The work of an utterance is cut into tasks, and threads take tasks in the order of the table: all of
them work on a long utterance, and on several short ones. Utterances are read ahead so far that no
thread waits for one that has a long task, and not farther.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import attrs
from nnet3_descriptors import Nnet3Error
from nnet3_runtime_cuda import Work
from nnet3_runtime_cuda.cpu.threads import LIMIT, SharedTasks
from nnet3_tables import FloatArray, TableError, TableWriter, read_matrices

from nnet3_tools.kaldi_command import one_line
from nnet3_tools.progress import Progress

READ_AHEAD_FRAMES = 2000
"""So many frames, for each thread, are read while the oldest utterance is computed."""

_Entry = tuple[str, Callable[[], FloatArray]]


def compute_all(
    features: str,
    open_output: Callable[[], TableWriter],
    prepare: Callable[[str, FloatArray], Work],
    progress: Progress,
    *,
    num_threads: int = 1,
) -> None:
    """Writes what is computed for each utterance of a table, in the order of the table.

    If the output is to be prompt (`ark,f:-`), it is written before the next utterance is read, as
    for a program that waits for it. Failures of single utterances, and damage of the feature table,
    are reported and counted.

    Args:
        features: The table of features.
        open_output: Opens the table to write.
        prepare: Called with an utterance and its features; returns what is to be done for it, by
            other threads.
        progress: Hears how each utterance went.
        num_threads: How many threads compute.

    Raises:
        TableError: the features cannot be opened or the output cannot be written.
    """
    table = read_matrices(features)
    # Reads before it writes: without features no output is created.
    first = list(itertools.islice(table, 1))
    with _reported(open_output(), progress) as writer, UtteranceQueue(num_threads) as queue:
        for key, read in itertools.chain(first, _until_damaged(table, progress)):
            try:
                frames = read()
                work = prepare(key, frames)
            except Nnet3Error as error:
                progress.fail(key, one_line(error))
                continue
            queue.add(key, len(frames), work)
            while queue.is_full or queue.has_result or (queue and writer.is_prompt):
                _finish(queue, writer, progress)
        while queue:
            _finish(queue, writer, progress)


@contextlib.contextmanager
def _reported(writer: TableWriter, progress: Progress) -> Iterator[TableWriter]:
    """Gives a table to write to; says where the part of it is that was written if that is all."""
    try:
        with writer:
            yield writer
    except BaseException:
        if writer.unfinished is not None:
            progress.warn(f"not finished; what was computed is in '{writer.unfinished}'")
        raise


def _finish(queue: UtteranceQueue, writer: TableWriter, progress: Progress) -> None:
    """Waits for the oldest utterance, and writes what was computed for it."""
    utterance = queue.oldest
    try:
        array = utterance.result()
    except Nnet3Error as error:
        progress.fail(utterance.key, one_line(error))
    else:
        writer.write(utterance.key, array)
        progress.succeed(utterance.num_frames)
    queue.remove_oldest()


@attrs.frozen(kw_only=True, eq=False)
class _Utterance:
    """An utterance that is being computed, or waits for it.

    Attributes:
        key: Its name.
        num_frames: Its length.
        work: What is to be done.
        tasks: What of it no thread has begun.
        shares: What threads do of it.
    """

    key: str
    num_frames: int
    work: Work
    tasks: SharedTasks
    shares: list[Future[None]]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be done but to finish."""
        return all(share.done() for share in self.shares)

    @property
    def frames_per_task(self) -> int:
        """How long a thread may be busy with it alone, in frames."""
        return self.num_frames // max(1, len(self.work.tasks))

    def result(self) -> FloatArray:
        """Waits for the tasks, and finishes the work.

        Raises:
            Exception: what a task raised.
        """
        for share in self.shares:
            share.result()
        self.tasks.check()
        return self.work.finish()


class UtteranceQueue:
    """The utterances that were read and not yet written, and the threads that compute them.

    To be used as a context manager; what no thread has begun at its end is left out.
    """

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads)
        self._limit = contextlib.ExitStack()
        self._utterances: deque[_Utterance] = deque()
        self._num_frames = 0

    def __enter__(self) -> UtteranceQueue:
        self._limit.enter_context(LIMIT.at_most(1))  # once, not for each task
        return self

    def __exit__(self, *_: object) -> None:
        for utterance in self._utterances:
            utterance.tasks.cancel()
        self._pool.shutdown(cancel_futures=True)
        self._limit.close()

    def __len__(self) -> int:
        return len(self._utterances)

    def add(self, key: str, num_frames: int, work: Work) -> None:
        """Has the threads do the work, when they are done with what came before."""
        tasks = SharedTasks(work.tasks)
        count = min(self._num_threads, len(work.tasks))
        shares = [self._pool.submit(tasks.work) for _ in range(count)]
        self._utterances.append(
            _Utterance(key=key, num_frames=num_frames, work=work, tasks=tasks, shares=shares)
        )
        self._num_frames += num_frames

    @property
    def oldest(self) -> _Utterance:
        """The one to be written next."""
        return self._utterances[0]

    def remove_oldest(self) -> None:
        """Forgets it."""
        self._num_frames -= self._utterances.popleft().num_frames

    @property
    def has_result(self) -> bool:
        """Whether the oldest can be written at once."""
        return bool(self._utterances) and self.oldest.is_done

    @property
    def is_full(self) -> bool:
        """Whether enough is waiting to keep all threads busy for as long as the oldest may take."""
        if len(self) <= self._num_threads:
            return False
        ahead = self._num_threads * max(READ_AHEAD_FRAMES, self.oldest.frames_per_task)
        return self._num_frames - self.oldest.num_frames > ahead


def _until_damaged(table: Iterator[_Entry], progress: Progress) -> Iterator[_Entry]:
    """The entries of a table; damage ends it and counts as one failure."""
    try:
        yield from table
    except TableError as error:
        progress.failed += 1
        progress.warn(one_line(error))
