"""Utterances that were read and not yet written, and the threads that compute them.

The work of an utterance is cut into tasks, or into runs that are computed with those of other
utterances. Threads take them in the order of the utterances, so all threads share a long utterance,
and several short ones.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias

import attrs
from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.forking import ForkError
from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.cpu import LIMIT, SharedTasks, Task

from nnet3.batches.minibatches import (
    BatchOptions,
    Minibatch,
    MinibatchFormer,
    Run,
    Work,
    compute_together,
)
from nnet3.caching import Promise
from nnet3.computer_pool import ComputerPool

READ_AHEAD_FRAMES = 1000
"""Frames to read, for each thread, while the oldest utterance is computed."""


@attrs.frozen(kw_only=True, eq=False)
class QueuedUtterance:
    """An utterance that is being computed, or waits for it.

    Attributes:
        key: Its name.
        num_frames: Its length.
        work: Its work.
        tasks: The tasks that no thread has begun.
        shares: The shares of threads.
        errors: The errors, by the number of the run.
    """

    key: str
    num_frames: int
    work: Work
    tasks: SharedTasks
    shares: list[Promise[None]] = attrs.field(factory=list)
    errors: dict[int, Nnet3Error] = attrs.field(factory=dict)
    placed: list[int] = attrs.field(factory=list)

    @property
    def is_begun(self) -> bool:
        """Whether all of its work was given to threads."""
        return len(self.placed) == len(self.work.runs)

    @property
    def is_done(self) -> bool:
        """Whether only `finish` is left to do."""
        return self.is_begun and not any(share.making.locked() for share in self.shares)

    @property
    def frames_per_task(self) -> int:
        """The average number of frames of a task, which one thread computes."""
        return self.num_frames // max(1, len(self.work.tasks))

    def result(self) -> FloatArray:
        """Waits for the tasks, finishes the work and returns the result.

        Raises:
            Exception: the error of a task.
        """
        for share in self.shares:
            share.result()
        self.tasks.check()
        if self.errors:
            raise self.errors[min(self.errors)]
        return self.work.finish()


class UtteranceQueue:
    """Computes utterances on threads, and gives the results in their order.

    Use it as a context manager; at its end, work that no thread has begun is dropped. A forked
    process has none of the threads: there the queue takes and gives nothing.
    """

    def __init__(
        self,
        num_threads: int,
        pool: ComputerPool | None = None,
        options: BatchOptions | None = None,
        *,
        bytes_per_frame: int = 0,
    ) -> None:
        """Begins without utterances.

        Args:
            num_threads: Number of computing threads.
            pool: Computes runs of several utterances together; None: each task is computed alone.
            options: The options for sharing minibatches.
            bytes_per_frame: Bytes of the features and outputs of a frame.
        """
        options = options or BatchOptions()
        self._num_threads = num_threads
        self._computers = pool
        self._computer_bytes = options.computer_bytes
        self._frames_ahead = options.frames_ahead(bytes_per_frame) if pool else 0
        self._frames_waiting = options.frames_waiting(bytes_per_frame)
        self._former: MinibatchFormer[QueuedUtterance] | None = None
        if pool is not None:

            def sizes(run: Run) -> list[int]:
                needed = pool.bytes_of(run.request)
                return options.sizes(needed, is_edge=run.is_edge, num_chunks=run.num_chunks)

            self._former = MinibatchFormer(sizes, self._frames_ahead)
        # Neither a ThreadPoolExecutor nor Thread.join: after Ctrl-C, they may wait for ever.
        self._todo: _Todo = SimpleQueue()
        self._threads: list[threading.Lock] = []
        self._process = os.getpid()
        self._end = weakref.finalize(self, _end, self._todo, self._threads, self._process)
        self._limit = contextlib.ExitStack()
        self._utterances: deque[QueuedUtterance] = deque()
        self._num_frames = 0

    def __repr__(self) -> str:
        """The utterances and frames that wait."""
        return f"<UtteranceQueue: {len(self._utterances)} utterances, {self._num_frames:,} frames>"

    def __enter__(self) -> UtteranceQueue:
        self._limit.enter_context(LIMIT.at_most(1))  # once, not for each task
        if self._computers is not None:
            self._limit.enter_context(self._computers.within(self._computer_bytes))
        return self

    def __exit__(self, *_: object) -> None:
        for utterance in self._utterances:
            utterance.tasks.cancel()
        self._end()
        self._limit.close()

    def _check_process(self) -> None:
        """Raises a ForkError in a forked process, where locks of the threads may stay locked."""
        if os.getpid() != self._process:
            raise ForkError(
                "the process was forked after results of many utterances were begun; the threads "
                "that compute them are in the process that it was forked from: begin anew here"
            )

    def __len__(self) -> int:
        return len(self._utterances)

    def add(self, key: str, num_frames: int, work: Work) -> None:
        """Gives the work to the threads, after the work that came before.

        Raises:
            NotComputableError, CompilationError: the network gives no output for a run of it.
            ForkError: the queue is that of another process.
        """
        self._check_process()
        if self._former is None or not work.runs:
            work = attrs.evolve(work, runs=())
            tasks = SharedTasks(work.tasks)
            utterance = QueuedUtterance(key=key, num_frames=num_frames, work=work, tasks=tasks)
            count = min(self._num_threads, len(work.tasks))
            utterance.shares.extend(self._share(tasks.work) for _ in range(count))
        else:
            utterance = QueuedUtterance(
                key=key, num_frames=num_frames, work=work, tasks=SharedTasks(())
            )
            self._begin(self._former.add(utterance, num_frames, work.runs))
        self._utterances.append(utterance)
        self._num_frames += num_frames

    def flush(self) -> None:
        """Gives the threads all runs that wait to fill a minibatch.

        Raises:
            ForkError: the queue is that of another process.
        """
        self._check_process()
        if self._former is not None:
            self._begin(self._former.flush())

    def _begin(self, minibatches: Iterable[Minibatch[QueuedUtterance]]) -> None:
        for minibatch in minibatches:
            share = self._share(partial(self._compute, minibatch))
            for utterance, number, _ in minibatch[0]:
                utterance.shares.append(share)
                utterance.placed.append(number)

    def _share(self, task: Task) -> Promise[None]:
        """Gives a task to the threads, of which another begins, within the limits of the caller."""
        share: Promise[None] = Promise()
        share.making.acquire()
        self._todo.put((share, task))
        if len(self._threads) < self._num_threads:
            self._threads.append(threading.Lock())
            work = partial(contextvars.copy_context().run, _work, self._todo, self._threads[-1])
            threading.Thread(target=work, name="nnet3-queue", daemon=True).start()
        return share

    def _compute(self, minibatch: Minibatch[QueuedUtterance]) -> None:
        assert self._computers is not None
        members, size = minibatch
        errors = compute_together(self._computers, [run for _, _, run in members], size)
        for place, error in errors.items():
            utterance, number, _ = members[place]
            utterance.errors[number] = error

    @property
    def oldest(self) -> QueuedUtterance:
        """The one to be written next.

        Raises:
            ForkError: the queue is that of another process.
        """
        self._check_process()
        return self._utterances[0]

    def next_result(self) -> FloatArray:
        """Waits for the oldest utterance, and returns its result.

        Raises:
            Exception: the error of a task.
        """
        if not self.oldest.is_begun:
            self.flush()
        return self.oldest.result()

    def remove_oldest(self) -> None:
        """Forgets it."""
        self._num_frames -= self._utterances.popleft().num_frames

    @property
    def has_result(self) -> bool:
        """Whether the result of the oldest utterance is ready."""
        return bool(self._utterances) and self.oldest.is_done

    @property
    def is_full(self) -> bool:
        """Whether enough utterances wait: for the memory, or for the threads.

        There are enough for the threads if all threads stay busy for as long as the oldest
        utterance may take. Only utterances that threads already have count, so this does not change
        which runs share a minibatch.
        """
        if not self._utterances or not self.oldest.is_begun:
            return False  # it still waits to fill minibatches, for a limited number of frames
        others = self._num_frames - self.oldest.num_frames
        if others > self._frames_waiting:
            return True
        ahead = self._num_threads * max(READ_AHEAD_FRAMES, self.oldest.frames_per_task)
        return len(self) > self._num_threads and others > max(ahead, self._frames_ahead)


_Todo: TypeAlias = "SimpleQueue[tuple[Promise[None], Task] | None]"
"""The tasks that no thread has begun; None for a thread that is to end."""


def _work(todo: _Todo, at_work: threading.Lock) -> None:
    """The loop of a thread, which holds a lock until it ends."""
    with at_work:
        while (given := todo.get()) is not None:
            share, task = given
            try:
                task()
            except BaseException as error:
                share.error = error
            finally:
                del given, task  # which hold arrays
                share.making.release()


def _end(todo: _Todo, threads: list[threading.Lock], process: int) -> None:
    """Drops the tasks that no thread has begun, and waits for the threads, which end."""
    if os.getpid() != process:
        return  # they are in the process that this one was forked from
    with contextlib.suppress(Empty):
        while True:
            todo.get_nowait()
    for _ in threads:
        todo.put(None)
    for at_work in threads:
        with at_work:
            pass
