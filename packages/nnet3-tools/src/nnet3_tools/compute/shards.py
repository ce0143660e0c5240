"""A table of features computed in shards by several processes, here or on other machines.

A shard is a few utterances with all that is needed to compute them, so workers read no table. Each
utterance is computed by itself: what comes of it does not depend on who computes it, nor on the
others of its shard.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import nnet3_descriptors
import nnet3_runtime_cuda
import nnet3_tables

from nnet3_tools.compute.utterances import until_damaged
from nnet3_tools.kaldi_command import one_line

if TYPE_CHECKING:
    from nnet3_runtime_cuda import Model
    from nnet3_tables import FloatArray
    from nnet3_training.workers import Workers

    from nnet3_tools.progress import Progress

MOST_UTTERANCES, MOST_FRAMES = 32, 20_000
"""A shard is closed when it has so many of one of them."""

Ivectors = tuple["FloatArray | None", "FloatArray | None"]
"""The i-vector of an utterance and its online i-vectors."""


@attrs.frozen(kw_only=True, eq=False)
class Shard:
    """Utterances, and how they are to be computed.

    Attributes:
        model: The file of the model.
        version: When it was written, so that no other one is taken for it.
        options: Keyword arguments of `Model.compute`.
        utterances: Keys, features (frames, dim), and i-vectors.
    """

    model: str
    version: int
    options: dict[str, Any]
    utterances: list[tuple[str, FloatArray, Ivectors]] = attrs.field(repr=False)


@functools.lru_cache(maxsize=1)
def _loaded(path: str, version: int) -> Model:
    return nnet3_runtime_cuda.load(path)


def compute_shard(shard: Shard) -> list[tuple[str, int, FloatArray | str]]:
    """Computes the utterances of a shard.

    Returns:
        Of each its key, its frames, and the output, or why there is none.

    Raises:
        ModelFileError: the model cannot be read.
    """
    model = _loaded(shard.model, shard.version)
    results: list[tuple[str, int, FloatArray | str]] = []
    for key, frames, (ivector, online) in shard.utterances:
        result: FloatArray | str
        try:
            result = model.compute(frames, ivector, online_ivectors=online, **shard.options)
        except nnet3_descriptors.Nnet3Error as error:
            result = one_line(error)
        results.append((key, len(frames), result))
    return results


def compute_in_shards(
    model: str,
    features: str,
    output: str,
    ivectors: Callable[[str], Ivectors],
    options: dict[str, Any],
    progress: Progress,
    workers: Workers,
) -> None:
    """Writes what is computed for each utterance of a table, in the order of the table.

    Failures of single utterances, and damage of the feature table, are reported and counted.

    Args:
        model: The file of the model.
        features: The table of features.
        output: The table to write.
        ivectors: Gives the i-vectors of an utterance.
        options: Keyword arguments of `Model.compute`.
        progress: Hears how each utterance went.
        workers: Who computes.

    Raises:
        TableError: the features cannot be opened or the output cannot be written.
        WorkerError: workers died at the same shard three times.
        OSError: the model is not there.
    """
    path = os.path.abspath(model)
    version = os.stat(path).st_mtime_ns

    table = nnet3_tables.read_matrices(features)
    # Reads before it writes: without features no output is created.
    first = list(itertools.islice(table, 1))

    def shards() -> Iterator[Shard]:
        held: list[tuple[str, FloatArray, Ivectors]] = []
        for key, read in itertools.chain(first, until_damaged(table, progress)):
            try:
                held.append((key, read(), ivectors(key)))
            except nnet3_descriptors.Nnet3Error as error:
                progress.fail(key, one_line(error))
                continue
            num_frames = sum(len(frames) for _, frames, _ in held)
            if len(held) == MOST_UTTERANCES or num_frames >= MOST_FRAMES:
                yield Shard(model=path, version=version, options=options, utterances=held)
                held = []
        if held:
            yield Shard(model=path, version=version, options=options, utterances=held)

    with nnet3_tables.MatrixWriter(output) as writer:
        for results in workers.map(compute_shard, shards()):
            for key, num_frames, result in results:
                if isinstance(result, str):
                    progress.fail(key, result)
                else:
                    writer.write(key, result)
                    progress.succeed(num_frames)
