"""The kind of command that computes each piece of the input locations."""

from __future__ import annotations

import enum

import attrs
import numpy as np
from nnet3_computation.arrays import NONE, IntArray, where

from nnet3_compiler.assembly.locations import InputLocations
from nnet3_compiler.shortcut import Minibatch
from nnet3_compiler.steps.steps import Steps


class PieceKind(enum.IntEnum):
    """How the source rows of a piece lie."""

    EMPTY = 0
    """There are no source rows."""
    RANGE = 1
    """They are a range of the rows of one step, in order: a sum of matrices."""
    ROWS = 2
    """They are rows of one step: a sum of rows."""
    SCATTERED = 3
    """They are rows of several steps."""


@attrs.frozen(kw_only=True, eq=False)
class Pieces:
    """The pieces of the input locations, classified.

    Attributes:
        locations: The input locations.
        steps: The steps.
        minibatch: The sequences that the rows stand for.
        kind: (P,) int32, values of `PieceKind`.
        source_step: (P,) int32, the step that the rows come from, if they come from a single one.
        source_first: (P,) int32, the first of its rows that is used, if they are a range.
    """

    locations: InputLocations
    steps: Steps
    minibatch: Minibatch
    kind: IntArray
    source_step: IntArray
    source_first: IntArray

    @property
    def count(self) -> IntArray:
        """Number of rows of each piece: (P,) int32."""
        return self.steps.count[self.locations.step]

    def of_kind(self, kind: PieceKind) -> IntArray:
        """Returns the numbers of the pieces of a kind."""
        return where(self.kind == kind).astype(np.int32)

    def source_rows(self, piece: int) -> IntArray:
        """Returns the source rows of a piece, numbered through all steps; -1 for none."""
        begin = int(self.locations.begin[piece])
        count = int(self.steps.count[self.locations.step[piece]])
        return self.locations.source[begin : begin + count]

    def rows(self, piece: int) -> IntArray:
        """Returns the rows of the source step that a piece of kind ROWS takes; -1 for none."""
        source = self.source_rows(piece)
        first = self.steps.begin[self.source_step[piece]]
        return np.where(source >= 0, source - first, NONE).astype(np.int32)


def classify(steps: Steps, minibatch: Minibatch, locations: InputLocations) -> Pieces:
    """Finds the kind of each piece."""
    size = len(locations.step)
    if not size:
        nothing = np.zeros(0, np.int32)
        return Pieces(
            locations=locations,
            steps=steps,
            minibatch=minibatch,
            kind=nothing,
            source_step=nothing,
            source_first=nothing,
        )
    source, begin = locations.source, locations.begin
    step = steps.step_of_row[source]
    absent = source < 0
    first_step = np.minimum.reduceat(np.where(absent, len(steps), step), begin)
    source_step = np.maximum.reduceat(np.where(absent, NONE, step), begin)
    distance = source - np.arange(len(source), dtype=np.int32)
    is_range = np.minimum.reduceat(source, begin) >= 0
    is_range &= np.minimum.reduceat(distance, begin) == np.maximum.reduceat(distance, begin)
    source_first = source[begin] - steps.begin[source_step]
    if minibatch.size > 1:
        block = steps.block[locations.step]
        count = steps.count[locations.step]
        is_range &= (block == steps.block[source_step]) & (source_first % block == 0)
        is_range &= count % block == 0
    kind = np.where(is_range, PieceKind.RANGE, PieceKind.ROWS)
    kind[first_step < source_step] = PieceKind.SCATTERED
    kind[source_step < 0] = PieceKind.EMPTY
    return Pieces(
        locations=locations,
        steps=steps,
        minibatch=minibatch,
        kind=kind.astype(np.int32),
        source_step=source_step.astype(np.int32),
        source_first=source_first.astype(np.int32),
    )
