"""Changes that examples of 'chain' models need their own functions for: moving and weighting."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.indexes import T

from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.egs.changes import IVECTOR, OUTPUT, moved, named, with_output
from nnet3_training.errors import ExampleError
from nnet3_training.examples import ExampleInput, ExampleOutput, TrainingExample

NOT_COMPUTED = "__"
"""The beginning of names of inputs that no network reads."""

LWF_POSTERIORS = f"{NOT_COMPUTED}LWF-posteriors"
"""The input of an example with posteriors of another model (learning without forgetting)."""


def frame_step(output: ExampleOutput) -> int:
    """The distance in time of the frames of an output: Kaldi's frame subsampling factor.

    Raises:
        ExampleError: the output has one frame only.
    """
    times = output.indexes[:, T]
    later = times[times != times[0]]
    if not later.size:
        raise ExampleError(f"output '{output.name}' has only one frame: its step is unknown")
    return int(later[0] - times[0])


def shifted(example: TrainingExample, frames: int, *, step: int | None = None) -> TrainingExample:
    """The example with inputs moved by some frames, i-vectors excepted.

    Outputs move by the nearest multiple of their step, so that the network is also trained on input
    frames between two output frames.

    Args:
        example: An example of any kind.
        frames: The number of frames.
        step: The distance in time of the frames of its outputs; None to take it from the indexes.

    Raises:
        ExampleError: an output has one frame only, and no step is given; or a t is not a 32-bit
            number any more.
    """
    if not frames:
        return example
    inputs = [
        io if io.name == IVECTOR else attrs.evolve(io, indexes=moved(io.indexes, frames))
        for io in example.inputs
    ]
    outputs = []
    for io in example.outputs:
        each = frame_step(io) if step is None else step
        distance = each * math.floor(0.5 + frames / each)
        outputs.append(attrs.evolve(io, indexes=moved(io.indexes, distance)))
    return attrs.evolve(example, inputs=inputs, outputs=outputs)


def with_posteriors(
    example: TrainingExample, posteriors: npt.NDArray[np.float32]
) -> TrainingExample:
    """The example with posteriors of another model as a further input, as Kaldi's LWF reads them.

    Args:
        example: The example.
        posteriors: (rows, pdfs), for each row of its output. Their times are 0, 3, 6, ..., as in
            Kaldi, whatever the step of the output.
    """
    added = ExampleInput.from_sequences(LWF_POSTERIORS, [posteriors], t_step=3)
    return attrs.evolve(example, inputs=[*example.inputs, added])


def with_weight(example: TrainingExample, factor: float) -> TrainingExample:
    """The example with the weight of "output" multiplied.

    Raises:
        ExampleError: it has no such output.
    """
    return _with_output(
        example,
        lambda io: attrs.evolve(
            io, supervision=attrs.evolve(io.supervision, weight=io.supervision.weight * factor)
        ),
    )


def _with_output(
    example: TrainingExample, change: Callable[[ExampleOutput], ExampleOutput]
) -> TrainingExample:
    if not isinstance(named(example, example.outputs, OUTPUT).supervision, ChainSupervision):
        raise ExampleError(f"example '{example.key}': 'output' has no ChainSupervision")
    return with_output(example, change)
