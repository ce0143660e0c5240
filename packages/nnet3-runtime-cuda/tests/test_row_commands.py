"""Commands that move rows give the results of their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_computation import commands
from nnet3_computation.commands import Command
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_reference import ReferenceComputer
from small_networks import computation, network

ROWS = 6
NNET = network("input-node name=a dim=5\ninput-node name=b dim=5\noutput-node name=o input=a")
A, B = 1, 2
"""Both matrices have `ROWS` rows; the commands move the submatrix of columns 1 to 3."""
WHOLE_A, WHOLE_B, PART_A, PART_B = 1, 2, 3, 4
PARTS = [(A, 0, ROWS, 1, 3), (B, 0, ROWS, 1, 3)]


def check(command: Command, seed: int = 0, **lists: Any) -> None:
    """Compares all of the matrix 'a' after a command, which has one of the lists."""
    program = [
        commands.AcceptInput(matrix=WHOLE_A, node=0),
        commands.AcceptInput(matrix=WHOLE_B, node=1),
        command,
        commands.ProvideOutput(matrix=WHOLE_A, node=2),
        commands.NoOperationMarker(),
    ]
    lists = {name: [of_command] for name, of_command in lists.items()}
    moves = computation([(ROWS, 5)] * 2, program, parts=PARTS, **lists)
    a, b = np.random.default_rng(seed).normal(size=(2, ROWS, 5)).astype(np.float32)
    found, expected = (
        computer.forward({"a": a, "b": b})["o"]
        for computer in (NnetComputer(NNET, moves), ReferenceComputer(NNET, moves))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


row = st.integers(-1, ROWS - 1)
random_rows = st.lists(row, min_size=ROWS, max_size=ROWS).map(tuple)
regular_rows = st.builds(
    lambda start, step, repeat: tuple(
        r if 0 <= (r := start + step * (i // repeat)) < ROWS else -1 for i in range(ROWS)
    ),
    row,
    st.integers(-2, 2),
    st.integers(1, 3),
)
rows = random_rows | regular_rows
distinct_rows = st.permutations(range(ROWS)).flatmap(
    lambda order: st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(
        lambda kept: tuple(r if keep else -1 for r, keep in zip(order, kept, strict=True))
    )
)
alphas = st.sampled_from([1.0, -0.5])
seeds = st.integers(0, 1000)


def places(part: int, numbers: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Rows of a submatrix in a list for several; none for -1."""
    return tuple((part, r) if r >= 0 else (-1, -1) for r in numbers)


@given(st.sampled_from([commands.CopyRows, commands.AddRows]), rows, alphas, seeds)
def test_rows(kind: type[Command], indexes: tuple[int, ...], alpha: float, seed: int) -> None:
    """Rows of one submatrix."""
    check(kind(output=PART_A, input=PART_B, indexes=0, alpha=alpha), seed, indexes=indexes)


@given(st.sampled_from([commands.CopyRowsMulti, commands.AddRowsMulti]), rows, alphas, seeds)
def test_rows_of_many(
    kind: type[Command], indexes: tuple[int, ...], alpha: float, seed: int
) -> None:
    """Rows of the submatrices in a list."""
    command = kind(output=PART_A, indexes_multi=0, alpha=alpha)
    check(command, seed, indexes_multi=places(PART_B, indexes))


@given(
    st.sampled_from([commands.CopyToRowsMulti, commands.AddToRowsMulti]),
    distinct_rows,
    alphas,
    seeds,
)
def test_to_rows_of_many(
    kind: type[Command], indexes: tuple[int, ...], alpha: float, seed: int
) -> None:
    """Rows that go to the submatrices in a list."""
    scale = {"alpha": alpha} if kind is commands.AddToRowsMulti else {}
    command = kind(input=PART_B, indexes_multi=0, **scale)
    check(command, seed, indexes_multi=places(PART_A, indexes))


ranges = st.lists(
    st.tuples(row, st.integers(0, ROWS)).map(
        lambda pair: (pair[0], max(pair)) if pair[0] >= 0 else (-1, -1)
    ),
    min_size=ROWS,
    max_size=ROWS,
).map(tuple)


@given(ranges, alphas, seeds)
def test_add_row_ranges(pairs: tuple[tuple[int, int], ...], alpha: float, seed: int) -> None:
    """Sums of ranges of rows."""
    command = commands.AddRowRanges(output=PART_A, input=PART_B, indexes_ranges=0, alpha=alpha)
    check(command, seed, indexes_ranges=pairs)


@pytest.mark.parametrize(
    "command",
    [
        *(commands.MatrixCopy(output=PART_A, input=PART_B, alpha=alpha) for alpha in (1.0, -2.0)),
        *(commands.MatrixAdd(output=PART_A, input=PART_B, alpha=alpha) for alpha in (1.0, 0.5)),
        commands.SetConst(output=PART_A, alpha=3.0),
    ],
)
def test_whole_submatrices(command: Command) -> None:
    """Commands on whole submatrices."""
    check(command)
