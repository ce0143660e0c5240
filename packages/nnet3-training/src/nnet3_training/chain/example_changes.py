"""Changes of examples of 'chain' models: moved in time, with less context, renamed, weighted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import attrs
from nnet3_descriptors.indexes import IndexArray, N, T

from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError
from nnet3_training.examples import ExampleInput, ExampleOutput, TrainingExample

Io = TypeVar("Io", ExampleInput, ExampleOutput)

_INPUT, _OUTPUT, _IVECTOR = "input", "output", "ivector"


def frame_step(output: ExampleOutput) -> int:
    """The distance in time of the frames of an output: Kaldi's frame subsampling factor.

    Raises:
        ExampleError: the output has one frame only.
    """
    times = output.indexes[:, T]
    later = times[times != times[0]]
    if not later.size:
        raise ExampleError(f"output '{output.name}' has one frame only, which tells no step")
    return int(later[0] - times[0])


def shifted(example: TrainingExample, frames: int) -> TrainingExample:
    """The example with inputs moved by some frames, i-vectors excepted.

    Outputs move by the nearest multiple of their step, so that frames of the input that lie between
    two of the output are trained, too.
    """
    if not frames:
        return example
    inputs = [
        io if io.name == _IVECTOR else attrs.evolve(io, indexes=_moved(io.indexes, frames))
        for io in example.inputs
    ]
    outputs = []
    for io in example.outputs:
        step = frame_step(io)
        distance = step * math.floor(0.5 + frames / step)
        outputs.append(attrs.evolve(io, indexes=_moved(io.indexes, distance)))
    return attrs.evolve(example, inputs=inputs, outputs=outputs)


def _moved(indexes: IndexArray, frames: int) -> IndexArray:
    moved = indexes.copy()
    moved[:, T] += frames
    return moved


def with_context(
    example: TrainingExample, *, left: int | None, right: int | None
) -> TrainingExample:
    """The example with at most so many frames of "input" beside those of "output".

    Args:
        example: An example of one sequence.
        left: Frames before the first of the output; None for all.
        right: Frames after the last; None for all.

    Raises:
        ExampleError: the example has several sequences, or not this input and output.
    """
    if left is None and right is None:
        return example
    if any(bool(io.indexes[:, N].any()) for io in example.ios):
        raise ExampleError(f"example '{example.key}' has several sequences: too late for context")
    given = _named(example, example.inputs, _INPUT)
    times = _named(example, example.outputs, _OUTPUT).indexes[:, T]
    seen = given.indexes[:, T]
    first = seen.min() if left is None else times.min() - left
    last = seen.max() if right is None else times.max() + right
    kept = (seen >= first) & (seen <= last)
    if not kept.any():
        raise ExampleError(f"example '{example.key}': no frame of 'input' is left")
    shorter = attrs.evolve(given, indexes=given.indexes[kept], values=given.values[kept])
    inputs = [shorter if io is given else io for io in example.inputs]
    return attrs.evolve(example, inputs=inputs)


def _named(example: TrainingExample, ios: tuple[Io, ...], name: str) -> Io:
    for io in ios:
        if io.name == name:
            return io
    raise ExampleError(f"example '{example.key}' has no '{name}'")


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


def with_output_name(example: TrainingExample, name: str) -> TrainingExample:
    """The example with another name for "output".

    Raises:
        ExampleError: it has no such output.
    """
    return _with_output(example, lambda io: attrs.evolve(io, name=name))


def _with_output(
    example: TrainingExample, change: Callable[[ExampleOutput], ExampleOutput]
) -> TrainingExample:
    wanted = _named(example, example.outputs, _OUTPUT)
    if not isinstance(wanted.supervision, ChainSupervision):
        raise ExampleError(f"example '{example.key}': 'output' has no ChainSupervision")
    outputs = [change(io) if io is wanted else io for io in example.outputs]
    return attrs.evolve(example, outputs=outputs)
