"""The uses of parts of matrices, found by matrix, are those found by looking at every command."""

import numpy as np
from brief_computations import NNET, computation
from hypothesis import given, settings
from nnet3_computation import NnetComputation
from nnet3_computation.analysis import MATRIX, overlap
from nnet3_computation.commands import Access, AllocMatrixZeroed
from nnet3_descriptors import Nnet
from nnet3_optimizer import Analysis, analyze
from optimizer_networks import examples

Example = tuple[Nnet, NnetComputation]

PARTS = """
m2 = 6 x 8
m1 = accept input
m2 = undefined
m2(0:3, 0:3) = m1
m2(2:5, 0:3) = m1
m2(1:4, 4:7) = m1
m2(5:5, 0:3) = m1(0:0, :)
provide output = m1
segment end
free m2
"""


def accesses(analysis: Analysis, matrix: int) -> list[tuple[int, int, bool]]:
    """The accesses to a matrix one by one: command, submatrix, and whether it writes."""
    found = analysis.submatrix_accesses
    every = zip(
        found.command.tolist(), found.submatrix.tolist(), found.access.tolist(), strict=True
    )
    return [
        (command, submatrix, bool(access & Access.WRITE))
        for command, submatrix, access in every
        if analysis.submatrices[submatrix, MATRIX] == matrix
        and analysis.opcodes[command] != AllocMatrixZeroed.OPCODE
    ]


@given(examples())
@settings(max_examples=15)
def test_uses_of_random_computations(example: Example) -> None:
    """Accesses, the accesses before and after a command, and final writes agree."""
    analysis = analyze(*example)
    uses, end = analysis.uses, len(analysis.table)
    for matrix in range(1, len(analysis.matrices)):
        expected = accesses(analysis, matrix)
        at = uses.of_matrix(matrix)
        fields = (uses.command[at], uses.submatrix[at], uses.writes[at])
        assert list(zip(*(each.tolist() for each in fields), strict=True)) == expected
        commands = sorted({command for command, _, _ in expected})
        if len(commands) > 1:
            around = uses.around(np.array([matrix]), commands[1])
            assert [each.tolist() for each in around] == [commands[:1], commands[1:2]]
        written = [(command, other) for command, other, writes in expected if writes]
        others = analysis.submatrices[[other for _, other in written]]
        later = np.array([command for command, _ in written])
        for command, submatrix, _ in expected:
            part = np.broadcast_to(analysis.submatrices[submatrix], others.shape)
            changed = overlap(part, others) & (later > command)
            assert uses.is_unchanged(submatrix, command, end) == (not changed.any())


def test_rows_that_are_written_to_later() -> None:
    """Only rows of the same columns count, and only commands between the two given ones."""
    analysis = analyze(NNET, computation(PARTS))
    uses, commands = analysis.uses, analysis.uses.users_of(2, writing=True)
    parts = analysis.submatrices[analysis.table[commands[:2], 2]]
    after = np.array(commands[:2])

    written = uses.rows_written_to(parts, after, len(analysis.table))
    assert written is not None
    assert written.tolist() == [False, False, True, True, False, False, False, True]
    assert uses.rows_written_to(parts, after, commands[1]) is None
