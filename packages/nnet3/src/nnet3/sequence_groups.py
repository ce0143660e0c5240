"""Cutting a request up into requests for some of its sequences each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationRequest, IoSpecification

N = 0
"""The column of indexes that has the number of the sequence."""

Rows = slice | npt.NDArray[np.intp]
"""Some rows of a matrix: a slice where they are equally far apart."""


@attrs.frozen(kw_only=True, eq=False)
class SequenceGroup:
    """The part of a request that belongs to some of its sequences.

    Attributes:
        request: The request, with the sequences numbered from 0 on, in their order.
        input_rows: For each of its inputs, the places of its rows in the input of the whole
            request.
        output_rows: The same for its outputs.
    """

    request: ComputationRequest
    input_rows: Mapping[str, Rows]
    output_rows: Mapping[str, Rows]

    @classmethod
    def whole(cls, request: ComputationRequest) -> Self:
        """All of a request, with the numbers that its sequences have."""
        everything = slice(None)
        return cls(
            request=request,
            input_rows={io.name: everything for io in request.inputs},
            output_rows={io.name: everything for io in request.outputs},
        )


def num_sequences(request: ComputationRequest) -> int:
    """The number of sequences whose outputs are wanted."""
    return len(_wanted(request))


def _wanted(request: ComputationRequest) -> set[int]:
    """The numbers of the sequences whose outputs are wanted."""
    return set().union(*(io.indexes[:, N].tolist() for io in request.outputs))


def sequence_groups(request: ComputationRequest, count: int) -> list[SequenceGroup]:
    """Groups of the sequences whose outputs are wanted, with about equal numbers of rows.

    The rows with the same n are a sequence. No descriptor and no component in test mode mixes
    sequences, so the groups can be computed separately. Groups with sequences of the same shape, in
    the same order of rows, have equal requests.

    Args:
        request: The whole request.
        count: Wanted number of groups, at least 1; there are fewer if there are fewer sequences.
    """
    sizes: Counter[int] = Counter()
    for io in (*request.inputs, *request.outputs):
        sizes.update(io.indexes[:, N].tolist())
    sequences = _even_groups({n: sizes[n] for n in sorted(_wanted(request))}, count)
    return [_group(request, np.array(some)) for some in sequences]


def _even_groups(sizes: Mapping[int, int], count: int) -> list[list[int]]:
    """Sequences in groups of about equal size: the largest first, into the smallest group.

    Adjacent sequences of the same size come into the same group.
    """
    groups: list[list[int]] = [[] for _ in range(min(count, len(sizes)))]
    totals = [0] * len(groups)
    by_size = sorted(sizes, key=lambda n: -sizes[n])
    for size, sequences in groupby(by_size, key=sizes.__getitem__):
        chosen = []
        same = list(sequences)
        for _ in same:
            least = totals.index(min(totals))
            totals[least] += size
            chosen.append(least)
        for n, group in zip(same, sorted(chosen), strict=True):
            groups[group].append(n)
    return [sorted(group) for group in groups]


def _group(request: ComputationRequest, sequences: npt.NDArray[np.int_]) -> SequenceGroup:
    """The part of a request that belongs to sequences, given in ascending order."""
    inputs = {io.name: _rows_of(io, sequences) for io in request.inputs}
    outputs = {io.name: _rows_of(io, sequences) for io in request.outputs}

    def parts(ios: tuple[IoSpecification, ...], rows: Mapping[str, Any]) -> list[IoSpecification]:
        return [_part(io, rows[io.name], sequences) for io in ios if len(rows[io.name])]

    return SequenceGroup(
        request=attrs.evolve(
            request, inputs=parts(request.inputs, inputs), outputs=parts(request.outputs, outputs)
        ),
        input_rows={name: _as_slice(rows) for name, rows in inputs.items() if len(rows)},
        output_rows={name: _as_slice(rows) for name, rows in outputs.items() if len(rows)},
    )


def _rows_of(io: IoSpecification, sequences: npt.NDArray[np.int_]) -> npt.NDArray[np.intp]:
    """The rows of an input or output that belong to sequences."""
    return np.flatnonzero(np.isin(io.indexes[:, N], sequences))


def _part(
    io: IoSpecification, rows: npt.NDArray[np.intp], sequences: npt.NDArray[np.int_]
) -> IoSpecification:
    """Some rows of an input or output; sequences are numbered by their place in `sequences`."""
    indexes = io.indexes[rows]
    indexes[:, N] = np.searchsorted(sequences, indexes[:, N])
    return attrs.evolve(io, indexes=indexes)


def _as_slice(rows: npt.NDArray[np.intp]) -> Rows:
    """Rows in ascending order as a slice, if they are equally far apart."""
    first, last = int(rows[0]), int(rows[-1])
    step = int(rows[1]) - first if len(rows) > 1 else 1
    is_regular = last - first == step * (len(rows) - 1) and bool((np.diff(rows) == step).all())
    return slice(first, last + 1, step) if is_regular else rows
