"""Commands that move rows give the results of a plain loop over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_computation import commands
from nnet3_computation.commands import Command
from nnet3_runtime_cuda import NnetComputer
from small_networks import computation, network

ROWS = 6
NNET = network("input-node name=a dim=5\ninput-node name=b dim=5\noutput-node name=o input=a")
A, B = 1, 2
"""Both matrices have `ROWS` rows; the commands move the submatrix of columns 1 to 3."""
WHOLE_A, WHOLE_B, PART_A, PART_B = 1, 2, 3, 4
PARTS = [(A, 0, ROWS, 1, 3), (B, 0, ROWS, 1, 3)]

Pairs = tuple[tuple[int, int], ...]


def run(command: Command, a: np.ndarray, b: np.ndarray, **lists: Any) -> np.ndarray:
    """The matrix 'a' after a command, which has one of the lists."""
    program = [
        commands.AcceptInput(matrix=WHOLE_A, node=0),
        commands.AcceptInput(matrix=WHOLE_B, node=1),
        command,
        commands.ProvideOutput(matrix=WHOLE_A, node=2),
        commands.NoOperationMarker(),
    ]
    lists = {name: [of_command] for name, of_command in lists.items()}
    moves = computation([(ROWS, 5)] * 2, program, parts=PARTS, **lists)
    return NnetComputer(NNET, moves).forward({"a": a, "b": b})["o"]


def values(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices of random numbers."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(2, ROWS, 5)).astype(np.float32))


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
run_often = settings(max_examples=settings.default.max_examples)


@pytest.mark.parametrize("from_many", [False, True])
@given(rows, alphas, seeds, st.booleans())
@run_often
def test_copy_and_add_rows(
    from_many: bool, indexes: tuple[int, ...], alpha: float, seed: int, add: bool
) -> None:
    """CopyRows sets rows, to 0 for -1; AddRows adds rows, nothing for -1.

    CopyRowsMulti and AddRowsMulti read each row from the submatrix in the list.
    """
    a, b = values(seed)
    if from_many:
        pairs = tuple((PART_B, r) if r >= 0 else (-1, -1) for r in indexes)
        many = commands.AddRowsMulti if add else commands.CopyRowsMulti
        command: Command = many(output=PART_A, indexes_multi=0, alpha=alpha)
        actual = run(command, a, b, indexes_multi=pairs)
    else:
        kind = commands.AddRows if add else commands.CopyRows
        command = kind(output=PART_A, input=PART_B, indexes=0, alpha=alpha)
        actual = run(command, a, b, indexes=indexes)

    for i, r in enumerate(indexes):
        moved = np.float32(alpha) * b[r, 1:4] if r >= 0 else np.zeros(3, np.float32)
        a[i, 1:4] = moved + (a[i, 1:4] if add else 0)
    np.testing.assert_allclose(actual, a, rtol=1e-6, atol=1e-7)


@given(distinct_rows, alphas, seeds, st.booleans())
@run_often
def test_copy_and_add_to_rows_of_many(
    indexes: tuple[int, ...], alpha: float, seed: int, add: bool
) -> None:
    """CopyToRowsMulti and AddToRowsMulti write each row to the submatrix in the list."""
    a, b = values(seed)
    pairs = tuple((PART_A, r) if r >= 0 else (-1, -1) for r in indexes)
    command: Command = (
        commands.AddToRowsMulti(input=PART_B, indexes_multi=0, alpha=alpha)
        if add
        else commands.CopyToRowsMulti(input=PART_B, indexes_multi=0)
    )
    actual = run(command, a, b, indexes_multi=pairs)

    for i, r in enumerate(indexes):
        if r >= 0:
            a[r, 1:4] = np.float32(alpha) * b[i, 1:4] + a[r, 1:4] if add else b[i, 1:4]
    np.testing.assert_allclose(actual, a, rtol=1e-6, atol=1e-7)


ranges = st.lists(
    st.tuples(row, st.integers(0, ROWS)).map(
        lambda pair: (pair[0], max(pair)) if pair[0] >= 0 else (-1, -1)
    ),
    min_size=ROWS,
    max_size=ROWS,
).map(tuple)


@given(ranges, alphas, seeds)
@run_often
def test_add_row_ranges(pairs: Pairs, alpha: float, seed: int) -> None:
    """AddRowRanges adds the sum of a range of rows to each row."""
    a, b = values(seed)
    command = commands.AddRowRanges(output=PART_A, input=PART_B, indexes_ranges=0, alpha=alpha)
    actual = run(command, a, b, indexes_ranges=pairs)

    for i, (begin, end) in enumerate(pairs):
        if begin >= 0:
            a[i, 1:4] += np.float32(alpha) * b[begin:end, 1:4].sum(axis=0)
    np.testing.assert_allclose(actual, a, rtol=1e-5, atol=1e-6)


MOVES: dict[str, tuple[Command, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "copy": (commands.MatrixCopy(output=PART_A, input=PART_B), lambda a, b: b),
    "scaled copy": (
        commands.MatrixCopy(output=PART_A, input=PART_B, alpha=-2.0),
        lambda a, b: -2 * b,
    ),
    "add": (commands.MatrixAdd(output=PART_A, input=PART_B), lambda a, b: a + b),
    "scaled add": (
        commands.MatrixAdd(output=PART_A, input=PART_B, alpha=0.5),
        lambda a, b: a + b / 2,
    ),
    "constant": (commands.SetConst(output=PART_A, alpha=3.0), lambda a, b: np.full_like(a, 3.0)),
}


@pytest.mark.parametrize("name", MOVES)
def test_whole_submatrices(name: str) -> None:
    """Commands on whole submatrices do not change the columns beside them."""
    command, expected = MOVES[name]
    a, b = values(0)
    actual = run(command, a, b)

    a[:, 1:4] = expected(a[:, 1:4], b[:, 1:4])
    np.testing.assert_allclose(actual, a, rtol=1e-6)
