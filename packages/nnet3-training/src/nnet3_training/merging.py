"""Minibatches: several training examples merged into one, for one computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from nnet3_descriptors.indexes import IndexArray, N, T

from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError
from nnet3_training.example_arrays import FloatArray
from nnet3_training.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    TrainingExample,
)

Io = TypeVar("Io", ExampleInput, ExampleOutput)


def merge_examples(examples: Sequence[TrainingExample]) -> TrainingExample:
    """Several examples of one sequence each as one, for a step on all of them.

    Args:
        examples: At least one; with the same inputs and outputs, of n = 0.

    Returns:
        The sequences as n = 0, 1, ..., their rows one after the other; the rows of a
        `ChainSupervision` frame by frame, the sequences of a frame side by side.

    Raises:
        ExampleError: they differ in their inputs, outputs or dimensions, or have several sequences.
    """
    names = {tuple(io.name for io in example.ios) for example in examples}
    if len(names) != 1 or any(example.num_sequences != 1 for example in examples):
        raise ExampleError(
            "examples that are merged must have one sequence each, and the same inputs and outputs"
        )
    return TrainingExample(
        inputs=[_merged_inputs(ios) for ios in _parallel([e.inputs for e in examples])],
        outputs=[_merged_outputs(ios) for ios in _parallel([e.outputs for e in examples])],
    )


def _parallel(rows: Sequence[tuple[Io, ...]]) -> list[tuple[Io, ...]]:
    return list(zip(*rows, strict=True))


def _merged_indexes(ios: Sequence[ExampleInput | ExampleOutput]) -> IndexArray:
    """The indexes of all, with n the number of the example."""
    merged = np.concatenate([io.indexes for io in ios])
    merged[:, N] = np.repeat(np.arange(len(ios)), [len(io.indexes) for io in ios])
    return merged


def _merged_inputs(ios: Sequence[ExampleInput]) -> ExampleInput:
    _check_dims(f"input '{ios[0].name}'", [io.matrix.shape[1] for io in ios])
    return ExampleInput(name=ios[0].name, indexes=_merged_indexes(ios), values=_merged_matrix(ios))


def _merged_matrix(ios: Sequence[ExampleInput]) -> FloatArray | SparsePosteriors:
    """The rows of all matrices; sparse if all matrices are."""
    sparse = [io.matrix for io in ios if isinstance(io.matrix, SparsePosteriors)]
    if len(sparse) == len(ios):
        return SparsePosteriors.merged(sparse)
    return np.concatenate([io.values for io in ios])


def _check_dims(what: str, dims: Sequence[int]) -> None:
    """Raises an ExampleError unless all are the same."""
    if len(set(dims)) > 1:
        raise ExampleError(f"{what}: examples differ in their dimension: {sorted(set(dims))}")


def _merged_outputs(ios: Sequence[ExampleOutput]) -> ExampleOutput:
    """Merges the supervision too.

    Raises:
        ExampleError: supervisions differ in kind or dimension, or cannot be merged.
    """
    kind, name = type(ios[0].supervision), ios[0].name
    if kind is ChainSupervision and all(type(io.supervision) is kind for io in ios):
        return _merged_chain(ios)
    if kind not in (DenseTargets, SparsePosteriors) or any(
        type(io.supervision) is not kind for io in ios
    ):
        raise ExampleError(f"output '{name}': cannot merge supervision of type {kind.__name__}")
    _check_dims(f"output '{name}'", [io.supervision.shape[1] for io in ios])
    supervision = kind.merged([io.supervision for io in ios])
    return ExampleOutput(name=name, indexes=_merged_indexes(ios), supervision=supervision)


def _merged_chain(ios: Sequence[ExampleOutput]) -> ExampleOutput:
    """Merges chain supervisions, with rows in the order that their objective expects."""
    try:
        supervision = ChainSupervision.merged([io.supervision for io in ios])
    except ExampleError as error:
        raise ExampleError(f"output '{ios[0].name}': {error}") from error
    indexes = _merged_indexes(ios)
    order = np.lexsort((indexes[:, N], indexes[:, T]))
    return ExampleOutput(name=ios[0].name, indexes=indexes[order], supervision=supervision)


def shape_of(example: TrainingExample) -> object:
    """The names and indexes of an example; examples with equal ones can share a computation."""
    return tuple((io.name, io.indexes.tobytes()) for io in example.ios)


def minibatches(examples: Iterable[TrainingExample], size: int) -> Iterator[TrainingExample]:
    """Merges examples into minibatches, each of examples with the same indexes.

    One computation then serves all minibatches of a shape. A minibatch comes as soon as it is full;
    the examples left at the end come in smaller ones.

    Args:
        examples: Examples of one sequence each, in their order of use.
        size: Number of examples in a minibatch.

    Raises:
        ExampleError: see `merge_examples`; or the size is not a positive integer.
    """
    if not isinstance(size, int | np.integer) or size < 1:
        raise ExampleError(f"the size of minibatches must be a positive integer (got {size!r})")
    waiting: dict[object, list[TrainingExample]] = {}
    for example in examples:
        shape = shape_of(example)
        group = waiting.setdefault(shape, [])
        group.append(example)
        if len(group) == size:
            yield merge_examples(waiting.pop(shape))
    for group in waiting.values():
        yield merge_examples(group)
