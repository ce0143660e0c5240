"""The work of an utterance for which a network gives one vector, segment by segment."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_runtime_cuda.arrays import FloatArray, as_matrix, check_output

from nnet3.chunk_work import ChunkNetwork
from nnet3.chunks import check_memory
from nnet3.utterance_segments import EvenSegmentOptions, SegmentOptions
from nnet3.utterance_work import Run, Work


def segment_work(
    network: ChunkNetwork,
    features: npt.ArrayLike,
    options: SegmentOptions | EvenSegmentOptions,
) -> Work:
    """The work of an utterance, with a task for each segment.

    Args:
        network: Computes the segments.
        features: (frames, input_dim).
        options: The options for cutting the utterance.

    Raises:
        RunError: the features are not as `Model.xvector` describes them, or too short.
    """
    frames = as_matrix(features, "input", "features", network.input_dim)
    parts = options.cut(frames)
    vectors = np.empty((len(parts), network.output_dim), dtype=np.float32)
    check_memory(max(options.padded_length(len(part)) for part in parts), network.input_dim)
    is_alone = network.pool.run_side_by_side(len(parts))

    def request(number: int) -> ComputationRequest:
        length = options.padded_length(len(parts[number]))
        return ComputationRequest(
            inputs=(IoSpecification.from_range("input", 0, length),),
            outputs=(IoSpecification.from_range("output", 0, 1),),
        )

    def inputs(number: int) -> dict[str, FloatArray]:
        return {"input": options.padded(parts[number])}

    def compute(number: int) -> None:
        given = request(number), inputs(number)
        put(number, network.pool.forward(*given, is_alone=is_alone)["output"])

    def put(number: int, rows: FloatArray) -> None:
        vectors[number] = rows[0]

    def as_run(number: int) -> Run:
        return Run(
            request=request(number), inputs=partial(inputs, number), take=partial(put, number)
        )

    def mean() -> FloatArray:
        check_output(vectors, f"the output of node '{network.output}'")
        lengths = list(map(len, parts))
        return np.average(vectors, axis=0, weights=lengths).astype(np.float32)

    numbers = range(len(parts))
    return Work(
        tasks=[partial(compute, number) for number in numbers],
        finish=mean,
        runs=[as_run(number) for number in numbers],
    )
