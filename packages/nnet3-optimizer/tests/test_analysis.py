"""Variables, accesses, uses and lifetimes by the declarations of commands; copies made early."""

import numpy as np
import pytest
from brief_computations import NNET, brief, computation, draft, proven
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_computation import NnetComputation
from nnet3_computation.analysis import MATRIX, Variables, overlap
from nnet3_computation.commands import Access, AllocMatrixZeroed, OperandKind
from nnet3_descriptors import Nnet
from nnet3_optimizer import Analysis, analyze
from nnet3_optimizer.passes.gather_early import gather_early
from optimizer_networks import examples

TEXT = """
m1 = 10 x 4
m2 = 6 x 4
i0 = 0, -1, 2, 3
j0 = m2(0:2, :)[0, 1], -, m1[9]
m1 = accept input
m2 = zeros
m3 = undefined
m2(0:2, :) = affine.propagate(m1(0:2, :))
m2 += m1(4:9, :)
m3 = rows(j0)
m3 += m2[i0]
m3 = norm.propagate(m3, memo 1)
provide output = m3
segment end
"""


def test_variables_are_split_where_submatrices_begin_and_end() -> None:
    """Rows and columns of a matrix are split at the ends of all its submatrices."""
    variables = analyze(NNET, computation(TEXT)).variables

    assert variables.row_splits[1].tolist() == [0, 3, 4, 10]
    assert variables.row_splits[2].tolist() == [0, 3, 6]
    assert variables.col_splits[1].tolist() == [0, 4]
    assert [variables.describe(v) for v in range(len(variables))] == [
        "m1(0:2, 0:3)",
        "m1(3:3, 0:3)",
        "m1(4:9, 0:3)",
        "m2(0:2, 0:3)",
        "m2(3:5, 0:3)",
        "m3",
    ]


def test_command_attributes() -> None:
    """The analysis has the accesses of each command by variable, submatrix and matrix."""
    analysis = analyze(NNET, computation(TEXT))

    propagate = analysis.command_attributes(3)
    assert propagate.variables_read.tolist() == [0]
    assert propagate.variables_written.tolist() == [3]
    assert propagate.matrices_read.tolist() == [1, 2]
    assert propagate.matrices_written.tolist() == [2]
    assert not propagate.has_side_effects
    rows = analysis.command_attributes(5)
    assert rows.variables_read.tolist() == [0, 1, 2, 3]
    assert rows.variables_written.tolist() == [5]


def test_variable_accesses() -> None:
    """The commands that access a variable, in order, each once."""
    analysis = analyze(NNET, computation(TEXT))

    commands, access = analysis.variable_accesses[3]
    assert commands.tolist() == [1, 3, 4, 5, 6]
    assert access.tolist() == [Access.WRITE, Access.WRITE, Access.READ_WRITE] + [Access.READ] * 2
    in_place, kinds = analysis.variable_accesses[5]
    assert in_place.tolist() == [5, 6, 7, 8]
    assert kinds.tolist() == [Access.WRITE, Access.READ_WRITE, Access.READ_WRITE, Access.READ]
    assert analysis.first_user.tolist() == [0, 0, 0, 3, 4, 5]
    commands, access = analysis.matrix_accesses[2]
    assert commands.tolist() == [1, 3, 4, 5, 6]
    assert access.tolist()[1] == Access.READ_WRITE  # writing to some rows leaves the others


def test_lifetimes() -> None:
    """The analysis has the allocation and deallocation of each matrix, and the user's matrices."""
    lifetimes = analyze(NNET, computation(TEXT)).lifetimes

    assert lifetimes.allocate.tolist() == [-1, 0, 1, 2]
    assert lifetimes.deallocate.tolist() == [-1, 10, 11, -1]
    assert lifetimes.is_input.tolist() == [False, True, False, False]
    assert lifetimes.is_output.tolist() == [False, False, False, True]


def test_components_that_add() -> None:
    """The access to a component's output depends on whether it sets or adds."""
    text = """
    m1 = 4 x 8
    m1 = zeros
    m2 = zeros
    m2 = {}.propagate(m1)
    """

    adds = analyze(NNET, computation(text.format("sum"))).variable_accesses[1][1]
    sets = analyze(NNET, computation(text.format("wide"))).variable_accesses[1][1]

    assert adds.tolist() == [Access.WRITE, Access.READ_WRITE]
    assert sets.tolist() == [Access.WRITE, Access.WRITE]


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of matrices, and submatrices of them."""
    sizes = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4))
    rows = [(0, 0, 0, 0, 0)]
    for _ in range(draw(st.integers(1, 12))):
        matrix = draw(st.integers(1, len(sizes)))
        num_rows, num_cols = sizes[matrix - 1]
        row, col = draw(st.integers(0, num_rows - 1)), draw(st.integers(0, num_cols - 1))
        height = draw(st.integers(1, num_rows - row))
        rows.append((matrix, row, height, col, draw(st.integers(1, num_cols - col))))
    matrices = np.array([(0, 0), *sizes], np.int32)
    return matrices, np.array(rows, np.int32)


def elements(submatrix: list[int]) -> set[tuple[int, int, int]]:
    """The matrix, row and column of all elements of a submatrix."""
    matrix, row, rows, col, cols = submatrix
    return {(matrix, r, c) for r in range(row, row + rows) for c in range(col, col + cols)}


@given(tables())
def test_variables_of_a_submatrix_are_its_elements(
    matrices_and_submatrices: tuple[np.ndarray, np.ndarray],
) -> None:
    """Variables partition matrices; the variables of a submatrix have exactly its elements."""
    matrices, submatrices = matrices_and_submatrices
    variables = Variables.of(matrices, submatrices)
    of_variable = [elements(list(variables.ranges(v))) for v in range(len(variables))]

    assert sum(map(len, of_variable)) == int(matrices.prod(axis=1).sum())
    lists = variables.of_submatrices(np.arange(len(submatrices)))
    for number, submatrix in enumerate(submatrices.tolist()):
        united = set().union(*(of_variable[v] for v in lists[number].tolist()))
        assert united == elements(submatrix)


@given(tables())
def test_overlap(matrices_and_submatrices: tuple[np.ndarray, np.ndarray]) -> None:
    """Submatrices overlap if and only if they share elements."""
    submatrices = matrices_and_submatrices[1]
    first, second = (grid.ravel() for grid in np.indices((len(submatrices),) * 2))

    shares = overlap(submatrices[first], submatrices[second])

    for a, b, result in zip(first, second, shares, strict=True):
        both = elements(submatrices[a].tolist()) & elements(submatrices[b].tolist())
        assert result == bool(both)


@given(examples())
@settings(max_examples=20)
def test_accesses_follow_from_the_operands(example: tuple[Nnet, NnetComputation]) -> None:
    """Command by command: the operands that access a matrix, then each submatrix of its list.

    Those that feed others are the commands whose results another command reads.
    """
    nnet, compiled = example
    analysis = analyze(nnet, compiled)
    expected = []
    for position, command in enumerate(compiled.commands):
        for operand in command.OPERANDS:
            number, access = getattr(command, operand.name), operand.access
            if operand.adds_if & nnet.components[getattr(command, "component", 0)].properties:
                access |= Access.READ
            named = [number] if number else []
            if operand.kind == OperandKind.INDEXES_MULTI:
                named = sorted({pair[0] for pair in compiled.indexes_multi[number].tolist()} - {-1})
            expected += [(position, each, access) for each in named if access]

    table = compiled.command_table
    feeds = np.zeros(len(table), np.bool_)
    feeds[analysis.flow.writer] = True

    found = analysis.submatrix_accesses

    assert list(zip(found.command, found.submatrix, found.access, strict=True)) == expected
    assert np.array_equal(analysis.feeds, feeds)


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


GATHERED = """
    m2 = 2 x 8
    m3 = 2 x 8
    m1 = accept input
    m2 = zeros
    m2 = widen.propagate(m1(0:1, :))
    m3 = zeros
    m3 = widen.propagate(m1(2:3, :))
    m4 = undefined
    m4 = sigmoid.propagate(m1)
    free m1
    provide output = m4
    segment end
    m6 = accept output
    m5 = undefined
    m5(0:1, :) = m3(:, 0:3)
    m6(0:1, :) += m3(:, 0:3)
    m5(2:3, :) = m2(:, 0:3)
    free m2
    free m3
    m6 += m5
    free m5
    provide input = m6
"""


def test_parts_are_gathered_as_soon_as_they_are_there() -> None:
    """Only the parts of matrices that the backward part reads outlive the forward part."""
    lines = proven(GATHERED, gather_early)

    assert lines.index("m5(2:3, :) = m2(:, 0:3)") < lines.index("m3 = zeros")
    assert lines.index("free m3") < lines.index("segment end")
    assert "m6(0:1, :) += m5(0:1, :)" in lines


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m5(2:3, :) = m2(:, 0:3)", "m5(2:3, :) = 2.0 * m2(:, 0:3)"),
        ("m5(2:3, :) = m2(:, 0:3)", "m5(0:1, :) = m2(:, 0:3)"),
        ("m6(0:1, :) += m3(:, 0:3)", "m6(0:1, :) += m3(:, 4:7)"),
        ("m6(0:1, :) += m3(:, 0:3)", "m3 += m2"),
        ("m6(0:1, :) += m3(:, 0:3)", "m6 += m5"),
    ],
    ids=["scaled", "over one another", "another part is used", "changed", "read in between"],
)
def test_parts_that_stay(old: str, new: str) -> None:
    """Copies stay in place if values would differ, or the source must be kept anyway."""
    text = GATHERED.replace(old, new)
    assert text != GATHERED

    assert brief(gather_early(draft(text))) == brief(draft(text))
