"""Tests of splitting row lists into regular blocks, and of the resulting moves."""

from itertools import groupby

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_runtime_cuda.lowering.arena import RegularBlocks, regular_blocks


def covered(blocks: RegularBlocks, lists: np.ndarray) -> np.ndarray:
    """The lists that the blocks stand for, of the shape of `lists`."""
    result = np.full_like(lists, -1)
    for b in range(len(blocks.start)):
        i, j = np.meshgrid(np.arange(blocks.runs[b]), np.arange(blocks.length[b]), indexing="ij")
        at = blocks.start[b] + (i * blocks.length[b] + j).ravel()
        for row in range(len(lists)):
            values = blocks.first[row, b] + i * blocks.outer[row, b] + j * blocks.inner[row, b]
            result[row, at] = values.ravel()
    return result


@st.composite
def row_lists(draw: st.DrawFn) -> np.ndarray:
    """Two lists of rows with some regularity and some breaks."""
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        count, length = draw(st.integers(1, 4)), draw(st.integers(1, 5))
        part = []
        for _ in range(2):
            first, outer, inner = (draw(st.integers(0, 30)) for _ in range(3))
            i, j = np.meshgrid(np.arange(count), np.arange(length), indexing="ij")
            part.append((first + i * outer + j * inner).ravel())
        parts.append(np.stack(part))
    return np.concatenate(parts, axis=1).astype(np.int64)


def progression(columns: list[np.ndarray]) -> int:
    """The number of columns, from the first on, that change by equal steps."""
    size = min(2, len(columns))
    while size < len(columns) and np.array_equal(
        columns[size] - columns[size - 1], columns[1] - columns[0]
    ):
        size += 1
    return size


def step(run: np.ndarray) -> list[int]:
    """The change of each list from one row of a run to the next."""
    return (run[1] - run[0]).tolist() if len(run) > 1 else [0] * run.shape[1]


def greedy_blocks(lists: np.ndarray) -> list[tuple[int, int, int]]:
    """Start, count and length of each block, by the definition.

    The blocks are the longest runs from the left, and as many of these as are equally spaced.
    """
    runs: list[np.ndarray] = []
    rest = list(lists.T)
    while rest:
        length = progression(rest)
        runs.append(np.array(rest[:length]))
        rest = rest[length:]
    blocks, start = [], 0
    while runs:
        length = len(runs[0])
        _, alike = next(groupby(runs, key=lambda run: (len(run), step(run))))
        count = progression([run[0] for run in alike])
        blocks.append((start, count, length))
        start += count * length
        runs = runs[count:]
    return blocks


@given(row_lists())
@settings(max_examples=2 * settings.default.max_examples)
def test_blocks_are_those_of_the_definition(lists: np.ndarray) -> None:
    """The search in linear time finds the longest runs and the longest blocks of them.

    Together they are the lists, element by element and in order.
    """
    blocks = regular_blocks(lists)

    np.testing.assert_array_equal(covered(blocks, lists), lists)
    found = np.stack([blocks.start, blocks.runs, blocks.length], axis=1)
    assert list(map(tuple, found.tolist())) == greedy_blocks(lists)


def test_change_of_order_is_one_block() -> None:
    """Reordering rows from order by sequence to order by time takes a single strided copy."""
    by_time = np.arange(6 * 4).reshape(6, 4)
    lists = np.stack([np.arange(24), by_time.T.ravel()])

    assert len(regular_blocks(lists).start) == 1
