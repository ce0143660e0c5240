"""A tool's main loop: computes something for each utterance of a table of features.

The loop reads utterances ahead, but only so far that all threads stay busy during a long task and
chunks fill minibatches (`UtteranceQueue`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import nnet3
import nnet3_descriptors
import nnet3_tables

from nnet3_tools import cli, streams
from nnet3_tools.progress import BYTES, UTTERANCES, LackingError, Progress

if TYPE_CHECKING:
    from nnet3_tables import FloatArray, TableWriter
    from nnet3_training.workers import Workers

    from nnet3_tools.compute.inputs import Ivectors, Recordings, Samples

    Entry = tuple[str, Callable[[], FloatArray | Samples]]
    """The key of an utterance, and what reads its features (frames, dim) or recording."""

    Compute = Callable[[nnet3.Model, FloatArray, Ivectors], FloatArray]
    """Computes the result of an utterance from a model, features (frames, dim) and i-vectors."""

    Given = list[tuple[str, FloatArray | Samples, Ivectors]]
    """Keys, features (frames, dim) or recordings, and i-vectors of the utterances of a shard."""

T = TypeVar("T")


def compute_all(
    features: str,
    open_output: Callable[[], nnet3_tables.TableWriter],
    prepare: Callable[[str, nnet3_tables.FloatArray], nnet3.Work],
    progress: Progress,
    *,
    recordings: Recordings | None = None,
    num_threads: int = 1,
    waiting: nnet3.UtteranceQueue | None = None,
) -> None:
    """Writes a result for each utterance of a table, in the order of the table.

    With the option "f" of a table (`ark,f:-`), each output is written before the next utterance is
    read, for a program that waits for it. Failures of single utterances, and damage of the feature
    table, are reported and counted.

    Args:
        features: The table of features.
        open_output: Opens the table to write.
        prepare: Called with an utterance and its features; returns its work for other threads.
        progress: Receives the result of each utterance.
        recordings: What the table has instead of features, if it has.
        num_threads: Number of computing threads.
        waiting: The queue that computes; None for `num_threads` threads that do each task alone.

    Raises:
        TableError: the features cannot be opened or the output cannot be written.
    """
    sizes = _Sizes(features)
    table: Iterator[tuple[str, Callable[[], FloatArray]]] = (
        nnet3_tables.read_matrices(features, sizes.passed)
        if recordings is None
        else iter(recordings)
    )
    # Reads before it writes: if the features are missing, no output is created.
    first = list(itertools.islice(table, 1))
    if not first:
        progress.warn(f"'{features}' has no utterances")
    with (
        _reported(open_output(), progress) as writer,
        nnet3.UtteranceQueue(num_threads) if waiting is None else waiting as queue,
    ):
        for key, read in itertools.chain(first, until_damaged(table, progress)):
            size = sizes.of_last()
            try:
                frames = with_frames(read())
                queue.add(key, len(frames), prepare(key, frames))
            except nnet3_descriptors.Nnet3Error as error:
                progress.fail(key, error, size)
                continue
            sizes.waiting.append(size)
            while queue.is_full or queue.has_result or (queue and writer.is_prompt):
                _finish(queue, writer, progress, sizes.waiting.popleft())
        queue.flush()
        while queue:
            _finish(queue, writer, progress, sizes.waiting.popleft())


def with_frames(features: nnet3_tables.FloatArray, least: int = 1) -> nnet3_tables.FloatArray:
    """The features, (frames, dim).

    Raises:
        LackingError: there are fewer frames than `least`.
    """
    if len(features) < least:
        raise LackingError(
            f"the utterance has {len(features)} frames, fewer than the least of {least}"
        )
    return features


class _Sizes:
    """The size of each utterance for a progress bar: 1, or its bytes in an archive.

    Attributes:
        waiting: The sizes of the utterances in the queue.
    """

    def __init__(self, features: str) -> None:
        self.waiting: deque[int] = deque()
        self._is_in_bytes = nnet3_tables.archive_size(features) is not None
        self._position = self._before = 0

    def passed(self, position: int) -> None:
        """Notes that the archive has been read up to a position."""
        self._position = position

    def of_last(self) -> int:
        """The size of the utterance read last."""
        size, self._before = self._position - self._before, self._position
        return size if self._is_in_bytes else 1


@contextlib.contextmanager
def _reported(
    writer: nnet3_tables.TableWriter, progress: Progress
) -> Iterator[nnet3_tables.TableWriter]:
    """A context with a table to write; after an error, it says where the written part is."""
    try:
        with streams.results(writer):
            yield writer
    except BaseException:
        if writer.unfinished is not None:
            progress.warn(f"not finished; what was computed is in '{writer.unfinished}'")
        raise


def _finish(
    queue: nnet3.UtteranceQueue, writer: nnet3_tables.TableWriter, progress: Progress, size: int
) -> None:
    """Waits for the oldest utterance, and writes its result; `size` is its size for the bar."""
    utterance = queue.oldest
    try:
        array = queue.next_result()
    except nnet3_descriptors.Nnet3Error as error:
        progress.fail(utterance.key, error, size)
    else:
        writer.write(utterance.key, array)
        progress.succeed(utterance.num_frames, size)
    queue.remove_oldest()


def total_of(features: str) -> tuple[int | None, str]:
    """The total for a progress bar, and its unit: bytes of an archive, or lines of a script file.

    None if the total is unknown.
    """
    size = nnet3_tables.archive_size(features)
    return (num_utterances(features), UTTERANCES) if size is None else (size, BYTES)


def num_utterances(features: str) -> int | None:
    """The number of entries of a table, if it is a script file; None otherwise."""
    specifier = nnet3_tables.Specifier.to_read(features)
    files = specifier.files
    if not specifier.is_script or not files or not os.path.isfile(files[0]):
        return None
    with open(files[0], "rb") as script:
        return sum(1 for line in script if line.strip())


def until_damaged(table: Iterator[T], progress: Progress) -> Iterator[T]:
    """The entries of a table; damage ends it and counts as one failure."""
    try:
        yield from table
    except nnet3_tables.TableError as error:
        progress.break_off(error)


MOST_UTTERANCES, MOST_FRAMES = 32, 20_000
"""The most utterances, and about the most frames, of a shard."""


def outputs_of(
    model: nnet3.Model, frames: FloatArray, ivectors: Ivectors, *, options: dict[str, Any]
) -> FloatArray:
    """The outputs (rows, dim), with keyword arguments of `Model.compute`."""
    return model.compute(frames, ivectors[0], online_ivectors=ivectors[1], **options)


def xvector_of(
    model: nnet3.Model, frames: FloatArray, ivectors: Ivectors, *, options: dict[str, Any]
) -> FloatArray:
    """The x-vector (dim,), with keyword arguments of `Model.xvector`."""
    return model.xvector(frames, **options)


@functools.lru_cache(maxsize=1)
def _loaded(path: str, version: int, node: str) -> nnet3.Model:
    return nnet3.load(path, output=node)


def compute_shard(
    model: tuple[str, int, str], compute: Compute, least_frames: int, utterances: Given
) -> list[tuple[str, int, FloatArray | LackingError | str]]:
    """Computes a few utterances, of which all data are given, as a worker.

    Args:
        model: The path of the model; the newest time at which its files were modified, by which a
            worker notices a changed file; and the node whose values are the outputs.
        compute: Computes an utterance; it can be sent to a process.
        least_frames: Utterances with fewer frames are left out.
        utterances: The utterances.

    Returns:
        For each utterance its key, its number of frames, and the output, or why there is none.

    Raises:
        ModelFileError: the model cannot be read.
    """
    loaded = _loaded(*model)
    results: list[tuple[str, int, FloatArray | LackingError | str]] = []
    for key, frames, ivectors in utterances:
        result: FloatArray | LackingError | str
        try:
            if isinstance(frames, tuple):
                found = loaded.features(frames)
                frames, ivectors = found.features, (None, found.online_ivectors)
            result = compute(loaded, with_frames(frames, least_frames), ivectors)
        except LackingError as error:
            result = error
        except nnet3_descriptors.Nnet3Error as error:
            result = cli.one_line(error)
        results.append((key, len(frames), result))
    return results


def _num_frames(frames: FloatArray | Samples) -> float:
    """Number of frames; of a recording, as if there were 100 in a second."""
    return 100 * len(frames[0]) / frames[1] if isinstance(frames, tuple) else len(frames)


def compute_in_shards(
    model: tuple[str, int, str],
    table: Iterator[Entry],
    open_writer: Callable[[], TableWriter],
    ivectors: Callable[[str], Ivectors],
    compute: Compute,
    progress: Progress,
    workers: Workers,
    *,
    least_frames: int = 1,
) -> None:
    """Writes a result for each utterance of a table, in the order of the table.

    Failures of single utterances, and damage of the feature table, are reported and counted.

    Args:
        model: See `compute_shard`, as for `least_frames`.
        table: The utterances.
        open_writer: Opens the table to write.
        ivectors: Gives the i-vectors of an utterance.
        compute: Computes an utterance; it can be sent to a process.
        progress: Receives the result of each utterance.
        workers: The workers.
        least_frames: The least length.

    Raises:
        TableError: the features cannot be opened or the output cannot be written.
        WorkerError: workers died at the same shard three times.
    """
    # Reads before it writes: if the features are missing, no output is created.
    first = list(itertools.islice(table, 1))

    def shards() -> Iterator[Given]:
        shard: Given = []
        for key, read in itertools.chain(first, until_damaged(table, progress)):
            try:
                shard.append((key, read(), ivectors(key)))
            except nnet3_descriptors.Nnet3Error as error:
                progress.fail(key, error)
                continue
            num_frames = sum(_num_frames(frames) for _, frames, _ in shard)
            if len(shard) == MOST_UTTERANCES or num_frames >= MOST_FRAMES:
                yield shard
                shard = []
        if shard:
            yield shard

    with streams.results(open_writer()) as writer:
        do = functools.partial(compute_shard, model, compute, least_frames)
        for results in workers.map(do, shards()):
            for key, num_frames, result in results:
                if isinstance(result, LackingError | str):
                    progress.fail(key, result)
                else:
                    writer.write(key, result)
                    progress.succeed(num_frames)
