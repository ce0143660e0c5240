"""Minibatches: training examples merged into one, for one computation; how many, by rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import attrs
import numpy as np
from nnet3_descriptors.indexes import IndexArray, N, T

from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.egs.changes import with_compression
from nnet3_training.egs.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    FloatArray,
    SparsePosteriors,
    TrainingExample,
)
from nnet3_training.errors import ExampleError


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
    for example in examples:
        if not isinstance(example, TrainingExample):
            raise ExampleError(f"expected a TrainingExample, found {type(example).__name__}")
    names = {tuple(io.name for io in example.ios) for example in examples}
    if len(names) != 1 or any(example.num_sequences != 1 for example in examples):
        raise ExampleError(
            "examples that are merged must have one sequence each, and the same inputs and outputs"
        )
    return TrainingExample(
        inputs=map(_merged_inputs, zip(*(each.inputs for each in examples), strict=True)),
        outputs=map(_merged_outputs, zip(*(each.outputs for each in examples), strict=True)),
    )


def _merged_indexes(ios: Sequence[ExampleInput | ExampleOutput]) -> IndexArray:
    """The indexes of all, with n the number of the example."""
    merged = np.concatenate([io.indexes for io in ios])
    merged[:, N] = np.repeat(np.arange(len(ios)), [len(io.indexes) for io in ios])
    return merged


def _merged_inputs(ios: Sequence[ExampleInput]) -> ExampleInput:
    """The rows of all matrices; sparse if all matrices are."""
    _check_dims(f"input '{ios[0].name}'", [io.matrix.shape[1] for io in ios])
    values: FloatArray | SparsePosteriors
    sparse = [io.matrix for io in ios if isinstance(io.matrix, SparsePosteriors)]
    if len(sparse) == len(ios):
        values = SparsePosteriors.merged(sparse)
    else:
        values = np.concatenate([io.values for io in ios])
    return ExampleInput(name=ios[0].name, indexes=_merged_indexes(ios), values=values)


def _check_dims(what: str, dims: Sequence[int]) -> None:
    """Raises an ExampleError unless all are the same."""
    if len(set(dims)) > 1:
        raise ExampleError(f"{what}: examples differ in their dimension: {sorted(set(dims))}")


def _merged_outputs(ios: Sequence[ExampleOutput]) -> ExampleOutput:
    """Merges the supervision too; rows are in the order that the objective expects.

    Raises:
        ExampleError: supervisions differ in kind or dimension, or cannot be merged.
    """
    kind, name = type(ios[0].supervision), ios[0].name
    parts, indexes = [io.supervision for io in ios], _merged_indexes(ios)
    is_known = kind in (ChainSupervision, DenseTargets, SparsePosteriors)
    if not is_known or any(type(part) is not kind for part in parts):
        raise ExampleError(f"output '{name}': cannot merge supervision of type {kind.__name__}")
    if kind is ChainSupervision:
        indexes = indexes[np.lexsort((indexes[:, N], indexes[:, T]))]
    else:
        _check_dims(f"output '{name}'", [part.shape[1] for part in parts])
    try:
        supervision = kind.merged(parts)
    except ExampleError as error:
        raise ExampleError(f"output '{name}': {error}") from error
    return ExampleOutput(name=name, indexes=indexes, supervision=supervision)


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
    rules = MinibatchRules(((0, ((1, int(size)),)),))
    yield from map(merge_examples, ExampleMerger(rules).groups(examples))


_Ranges = tuple[tuple[int, int], ...]


@attrs.frozen
class MinibatchRules:
    """The allowed sizes of minibatches, by the size of examples.

    The size of an example is the number of frames of its longest input or output.

    Attributes:
        rules: For each size of examples, the first and last size of each range of minibatch sizes;
            an example follows the rule of the nearest size.
    """

    rules: tuple[tuple[int, _Ranges], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses rules such as `64`, `32:64,128` or `128=64/256=16:32`.

        A rule is a list of sizes and ranges (first:last), separated by commas. Rules for several
        sizes of examples are separated by slashes.

        Raises:
            ExampleError: the text is not a rule.
        """
        parts = text.split("/")
        rules = []
        for part in parts:
            size, equals, ranges = part.rpartition("=")
            if not equals and len(parts) > 1:
                raise ExampleError(
                    f"minibatch size '{text}': expected SIZE=... in each of several rules, found "
                    f"'{part}'"
                )
            rules.append((_number(size, text) if equals else 0, _ranges(ranges, text)))
        if len({size for size, _ in rules}) != len(rules):
            raise ExampleError(f"minibatch size '{text}' has two rules for one size of examples")
        return cls(tuple(rules))

    def size(self, example_size: int, available: int, *, at_end: bool) -> int:
        """The number of waiting examples to merge now; 0 for none.

        Args:
            example_size: Size of these examples.
            available: Number of waiting examples.
            at_end: Whether these are the last examples; before the end, only the largest
                minibatches are made.
        """
        ranges = min(self.rules, key=lambda rule: abs(rule[0] - example_size))[1]
        if not at_end:
            largest = max(last for _, last in ranges)
            return largest if largest <= available else 0
        return max(
            (min(last, available) for first, last in ranges if first <= available), default=0
        )

    def num_discarded(self, example_size: int, available: int) -> int:
        """The number of so many examples, of the same shape, that are in no minibatch."""
        while count := self.size(example_size, available, at_end=True):
            available -= count
        return available


def _number(text: str, rule: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ExampleError(f"minibatch size '{rule}': expected a positive number, found '{text}'")
    return int(text)


def _ranges(text: str, rule: str) -> _Ranges:
    ranges = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        begin = _number(first, rule)
        end = _number(last, rule) if colon else begin
        if begin > end:
            raise ExampleError(f"minibatch size '{rule}': the range '{part}' falls")
        ranges.append((begin, end))
    return tuple(ranges)


@attrs.define
class ExampleMerger:
    """Merges examples into minibatches by rules, and counts.

    Attributes:
        rules: The rules.
        compress: Whether to compress features, and dense targets, of minibatches.
        num_written: By size of examples and size of minibatches, the number of minibatches.
        num_discarded: By size of examples, the number of examples left over.
    """

    rules: MinibatchRules
    compress: bool = False
    num_written: Counter[tuple[int, int]] = attrs.field(factory=Counter)
    num_discarded: Counter[int] = attrs.field(factory=Counter)

    def merged(self, examples: Iterable[TrainingExample]) -> Iterator[TrainingExample]:
        """Minibatches of examples with the same indexes, each as soon as it is full.

        Their keys are "merged-NUMBER-SIZE". At the end smaller ones are made, if the rules allow
        them; examples that no rule allows to merge are left out.

        Raises:
            ExampleError: see `merge_examples`.
        """
        for number, group in enumerate(self.groups(examples), self.num_written.total()):
            self.num_written[size_of(group[0]), len(group)] += 1
            merged = merge_examples(group)
            if self.compress:
                merged = with_compression(merged)
            yield attrs.evolve(merged, key=f"merged-{number}-{len(group)}")

    def groups(self, examples: Iterable[TrainingExample]) -> Iterator[list[TrainingExample]]:
        """The examples of each minibatch, as soon as it is full; counts those that are left out."""
        waiting: dict[object, list[TrainingExample]] = {}
        for example in examples:
            shape = shape_of(example)
            group = waiting.setdefault(shape, [])
            group.append(example)
            if self.rules.size(size_of(example), len(group), at_end=False):
                yield waiting.pop(shape)
        for group in waiting.values():
            size = size_of(group[0])
            while group and (count := self.rules.size(size, len(group), at_end=True)):
                yield group[:count]
                del group[:count]
            self.num_discarded[size] += len(group)

    def lines(self) -> list[str]:
        """The lines that Kaldi's tools log at the end.

        First each size of examples with {SIZE OF MINIBATCH->NUMBER,...,d=DISCARDED}, then the sums.
        """
        sizes = sorted({size for size, _ in self.num_written} | set(self.num_discarded))
        types = []
        for size in sizes:
            written = [
                f"{merged}->{number}"
                for (each, merged), number in sorted(self.num_written.items())
                if each == size
            ]
            types.append(f"{size}={{{','.join(written)},d={self.num_discarded[size]}}}")
        minibatches = self.num_written.total()
        used = sum(merged * number for (_, merged), number in self.num_written.items())
        discarded = self.num_discarded.total()
        frames = sum(size * merged * n for (size, merged), n in self.num_written.items())
        frames += sum(size * number for size, number in self.num_discarded.items())
        total = used + discarded
        return [
            ",".join(types),
            f"Processed {total} egs of avg. size {_share(frames, total)} into {minibatches} "
            f"minibatches, discarding {_share(100 * discarded, total)}% of egs.  "
            f"Avg minibatch size was {_share(used, minibatches)}, "
            f"#distinct types of egs/minibatches was {len(sizes)}/{len(self.num_written)}",
        ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.4g}" if whole else "nan"


def size_of(example: TrainingExample) -> int:
    """The size of an example, by which `MinibatchRules` choose."""
    return max(len(io.indexes) for io in example.ios)
