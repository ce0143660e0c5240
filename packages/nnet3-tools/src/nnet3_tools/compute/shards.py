"""A table of features computed in shards by several processes, here or on other machines.

A shard is a few utterances with all data that is needed to compute them, so workers read no table.
Each utterance is computed alone: its result depends neither on the worker nor on the rest of its
shard.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import nnet3
import nnet3_descriptors

from nnet3_tools import cli
from nnet3_tools.compute.utterances import until_damaged, with_frames
from nnet3_tools.progress import LackingError

if TYPE_CHECKING:
    from nnet3_tables import FloatArray, TableWriter
    from nnet3_training.workers import Workers

    from nnet3_tools.compute.inputs import Samples
    from nnet3_tools.progress import Progress

MOST_UTTERANCES, MOST_FRAMES = 32, 20_000
"""The most utterances, and about the most frames, of a shard."""

Ivectors = tuple["FloatArray | None", "FloatArray | None"]
"""The i-vector of an utterance and its online i-vectors."""

Entry = tuple[str, Callable[[], "FloatArray | Samples"]]
"""The key of an utterance, and a function that reads its features (frames, dim) or recording."""

Compute = Callable[["nnet3.Model", "FloatArray", Ivectors], "FloatArray"]
"""Computes the result of an utterance from a model, features (frames, dim) and i-vectors."""


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


@attrs.frozen(kw_only=True, eq=False)
class Shard:
    """A few utterances with all data that a worker needs to compute them.

    Attributes:
        model: The path of the model; the newest time at which its files were modified, by which a
            worker notices a changed file; and the node whose values are the outputs.
        compute: Computes an utterance; it can be sent to a process.
        least_frames: Utterances with fewer frames are left out.
        utterances: Keys, features (frames, dim) or recordings, and i-vectors.
    """

    model: tuple[str, int, str]
    compute: Compute
    least_frames: int
    utterances: list[tuple[str, FloatArray | Samples, Ivectors]] = attrs.field(factory=list)


@functools.lru_cache(maxsize=1)
def _loaded(path: str, version: int, node: str) -> nnet3.Model:
    return nnet3.load(path, output=node)


def compute_shard(shard: Shard) -> list[tuple[str, int, FloatArray | LackingError | str]]:
    """Computes the utterances of a shard.

    Returns:
        For each utterance its key, its number of frames, and the output, or why there is none.

    Raises:
        ModelFileError: the model cannot be read.
    """
    model = _loaded(*shard.model)
    results: list[tuple[str, int, FloatArray | LackingError | str]] = []
    for key, frames, ivectors in shard.utterances:
        result: FloatArray | LackingError | str
        try:
            if isinstance(frames, tuple):
                found = model.features(frames)
                frames, ivectors = found.features, (None, found.online_ivectors)
            result = shard.compute(model, with_frames(frames, shard.least_frames), ivectors)
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
        model: See `Shard`.
        table: The utterances.
        open_writer: Opens the table to write.
        ivectors: Gives the i-vectors of an utterance.
        compute: Computes an utterance; it can be sent to a process.
        progress: Receives the result of each utterance.
        workers: The workers.
        least_frames: Utterances with fewer frames are left out.

    Raises:
        TableError: the features cannot be opened or the output cannot be written.
        WorkerError: workers died at the same shard three times.
    """
    # Reads before it writes: if the features are missing, no output is created.
    first = list(itertools.islice(table, 1))

    def shards() -> Iterator[Shard]:
        new = functools.partial(Shard, model=model, compute=compute, least_frames=least_frames)
        shard = new()
        for key, read in itertools.chain(first, until_damaged(table, progress)):
            try:
                shard.utterances.append((key, read(), ivectors(key)))
            except nnet3_descriptors.Nnet3Error as error:
                progress.fail(key, error)
                continue
            num_frames = sum(_num_frames(frames) for _, frames, _ in shard.utterances)
            if len(shard.utterances) == MOST_UTTERANCES or num_frames >= MOST_FRAMES:
                yield shard
                shard = new()
        if shard.utterances:
            yield shard

    with open_writer() as writer:
        for results in workers.map(compute_shard, shards()):
            for key, num_frames, result in results:
                if isinstance(result, LackingError | str):
                    progress.fail(key, result)
                else:
                    writer.write(key, result)
                    progress.succeed(num_frames)
