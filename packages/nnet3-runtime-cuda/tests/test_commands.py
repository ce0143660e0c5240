"""Commands that move and compress rows give the results of their definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from computations import passes, request
from hypothesis import given
from hypothesis import strategies as st
from nnet3 import CachingCompiler
from nnet3_computation import commands
from nnet3_computation.commands import Command
from nnet3_optimizer import OptimizeOptions
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_reference import ReferenceComputer
from small_networks import computation, identity, network, stacked

# ---- rows ----

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
random_rows = st.lists(row, min_size=ROWS, max_size=ROWS)
regular_rows = st.builds(
    lambda start, step, repeat: [
        r if 0 <= (r := start + step * (i // repeat)) < ROWS else -1 for i in range(ROWS)
    ],
    row,
    st.integers(-2, 2),
    st.integers(1, 3),
)
distinct_rows = st.builds(
    lambda order, kept: [r if r in kept else -1 for r in order],
    st.permutations(range(ROWS)),
    st.sets(row),
)
alphas = st.sampled_from([1.0, -0.5])
seeds = st.integers(0, 1000)


def places(part: int, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Rows of a submatrix in a list for several; none for -1."""
    return [(part, r) if r >= 0 else (-1, -1) for r in numbers]


@given(random_rows | regular_rows, alphas, st.booleans(), st.booleans(), seeds)
def test_rows(indexes: list[int], alpha: float, adds: bool, of_many: bool, seed: int) -> None:
    """Rows of one submatrix, or of the submatrices in a list."""
    kinds = (commands.CopyRows, commands.CopyRowsMulti), (commands.AddRows, commands.AddRowsMulti)
    kind = kinds[adds][of_many]
    if of_many:
        command = kind(output=PART_A, indexes_multi=0, alpha=alpha)
        check(command, seed, indexes_multi=places(PART_B, indexes))
    else:
        check(kind(output=PART_A, input=PART_B, indexes=0, alpha=alpha), seed, indexes=indexes)


@given(distinct_rows, st.none() | alphas, seeds)
def test_to_rows_of_many(indexes: list[int], alpha: float | None, seed: int) -> None:
    """Rows that go to the submatrices in a list, or are added there."""
    command = commands.CopyToRowsMulti(input=PART_B, indexes_multi=0)
    if alpha is not None:
        command = commands.AddToRowsMulti(input=PART_B, indexes_multi=0, alpha=alpha)
    check(command, seed, indexes_multi=places(PART_A, indexes))


ranges = st.builds(
    lambda r, end: (r, max(r, end)) if r >= 0 else (-1, -1), row, st.integers(0, ROWS)
)


@given(st.lists(ranges, min_size=ROWS, max_size=ROWS), alphas, seeds)
def test_add_row_ranges(pairs: list[tuple[int, int]], alpha: float, seed: int) -> None:
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


# ---- compression ----

INT8, UINT8, INT16, UINT16, ONE_BIT = 1, 2, 3, 4, 5


def round_trip(
    array: np.ndarray, kind: int, limit: float, *, truncate: bool
) -> tuple[np.ndarray, np.ndarray]:
    """An array after compression and decompression, and what it is by the definition."""
    program = [
        commands.AcceptInput(matrix=1, node=0),
        commands.CompressMatrix(
            matrix=1, compression_type=kind, truncate=int(truncate), alpha=limit
        ),
        commands.DecompressMatrix(matrix=1),
        commands.ProvideOutput(matrix=1, node=1),
        commands.NoOperationMarker(),
    ]
    nnet, compressing = identity(array.shape[1]), computation([array.shape], program)
    found, expected = (
        computer.forward({"input": array})["output"]
        for computer in (NnetComputer(nnet, compressing), ReferenceComputer(nnet, compressing))
    )
    return found, expected


@pytest.mark.parametrize(
    ("kind", "limit", "truncate"),
    [
        *((kind, 5.0, truncate) for kind in (INT8, INT16, UINT16) for truncate in (False, True)),
        *((UINT8, limit, truncate) for limit in (5.0, 0.0) for truncate in (False, True)),
        (ONE_BIT, 0.0, False),
    ],
)
def test_compression(kind: int, limit: float, truncate: bool) -> None:
    """Values are rounded as by definition; those beyond the limit, if allowed, become the limit."""
    rng = np.random.default_rng(0)
    array = rng.uniform(0.0 if kind in (UINT8, UINT16) else -5.0, 5.0, (20, 8)).astype(np.float32)
    if truncate or limit == 0.0:
        array[:1] = [-1e6, -3.0, -0.0, 0.0, 1e-30, 2.5, 10.0, 1e6]

    found, expected = round_trip(array, kind, limit, truncate=truncate)

    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0)


def test_bits_at_the_end_of_the_matrix() -> None:
    """The planner may lay them over any rows of their matrix; the other rows still count."""
    matrix = np.random.default_rng(0).standard_normal((2500, 64)).astype(np.float32)
    expected = np.packbits(matrix > 0, axis=1, bitorder="little")
    packed = matrix.reshape(-1).view(np.uint8)[-expected.size :].reshape(expected.shape)
    tape = NumpyTape(dtype=np.float32)

    tape.pack_signs(matrix, packed)
    tape.run()

    np.testing.assert_array_equal(packed, expected)


RECTIFIER = stacked(
    12,
    "a1 Affine input-dim=12 output-dim=70",
    "r RectifiedLinear dim=70",
    "b BatchNorm dim=70",
    "a2 Affine input-dim=70 output-dim=3",
)


def test_rectifier_is_run_backward_with_its_signs() -> None:
    """Derivatives do not depend on whether a rectifier's output is kept as signs."""
    nnet = network(RECTIFIER)
    found = []
    for level in (0, 1):
        options = OptimizeOptions(memory_compression_level=level)
        compiler = CachingCompiler(nnet, optimize_options=options)
        compiled = compiler.compile(request(range(1000), range(1000)))
        found.append(passes(NnetComputer(DeviceNnet(nnet, trainable=True), compiled)))
        packs = any(isinstance(x, commands.CompressMatrix) for x in compiled.commands)
        assert packs == bool(level)

    for without, with_signs in zip(*found, strict=True):
        np.testing.assert_allclose(with_signs, without, rtol=1e-4, atol=1e-4)
