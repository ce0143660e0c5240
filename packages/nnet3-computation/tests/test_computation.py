"""NnetComputation: its errors, what it derives from commands, and how a builder makes one."""

import copy
import pickle
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationBuilder, commands, format_computation
from nnet3_computation.commands import command_table
from nnet3_computation.commands.declaration import ALPHA_COLUMN, alpha_bits
from nnet3_computation.computation import NnetComputation
from nnet3_computation.computation.parts import DebugInfoOfRows, MatrixDebugInfo
from small_networks import identity, request_for

MATRICES = [[0, 0], [4, 3], [4, 2], [4, 2]]
SUBMATRICES = [
    [0, 0, 0, 0, 0],
    [1, 0, 4, 0, 3],
    [2, 0, 4, 0, 2],
    [3, 0, 4, 0, 2],
    [1, 1, 2, 0, 2],
]
PROGRAM = [
    commands.AcceptInput(matrix=1, node=0),
    commands.AllocMatrixZeroed(matrix=2),
    commands.Propagate(component=0, input=1, output=2),
    commands.ProvideOutput(matrix=2, node=3),
    commands.NoOperationMarker(),
    commands.AcceptInput(matrix=3, node=3),
    commands.Backprop(component=0, input_value=1, output_deriv=3),
    commands.DeallocMatrix(matrix=1),
]


def small_computation(**changes: Any) -> NnetComputation:
    """A computation of two matrices and their derivative, with some fields changed."""
    fields: dict[str, Any] = {
        "matrices": MATRICES,
        "submatrices": SUBMATRICES,
        "command_table": command_table(PROGRAM),
        "indexes": [[0, -1, 3]],
        "indexes_multi": [[[1, 0], [-1, -1]]],
        "indexes_ranges": [[[0, 2], [-1, -1]]],
        "need_model_derivative": True,
    }
    return NnetComputation(**(fields | changes))


class TestValue:
    """A computation is a frozen value."""

    def test_equal_by_content(self) -> None:
        """Equal parts make equal computations with equal hashes."""
        assert small_computation() == small_computation()
        assert hash(small_computation()) == hash(small_computation())
        assert small_computation() != small_computation(indexes=[[0, -1, 2]])

    def test_copied_and_pickled(self) -> None:
        """A computation is the same in another process, and as a copy."""
        compiled = compile_computation(identity(3), request_for(range(4), range(4)))

        for other in (
            pickle.loads(pickle.dumps(compiled)),  # noqa: S301, bytes of our own
            copy.deepcopy(compiled),
        ):
            assert other == compiled
            other.check_network(identity(3))

    def test_steps_by_node(self) -> None:
        """Steps have node names; steps without rows are left out."""
        computation = small_computation(steps=[[0, 4], [1, 0], [1, 4]])

        assert computation.steps_by_node(identity(3)) == [("input", 4), ("output", 4)]
        assert small_computation().steps_by_node(identity(3)) == []

    def test_arrays_are_read_only_copies(self) -> None:
        """A computation copies its arrays, and its copies are read-only."""
        matrices = np.array(MATRICES, np.int32)
        computation = small_computation(matrices=matrices)
        matrices[1, 0] = 9

        assert computation.matrices[1].tolist() == [4, 3]
        with pytest.raises(ValueError, match="read-only"):
            computation.matrices[1, 0] = 9

    def test_read_only_views_are_copied(self) -> None:
        """A read-only view of an array that the caller can still write to is copied."""
        matrices = np.array(MATRICES, np.int32)
        computation = small_computation(matrices=np.broadcast_to(matrices, matrices.shape))
        matrices[1, 0] = 9

        assert computation.matrices[1].tolist() == [4, 3]

    def test_evolve_keeps_the_rest(self) -> None:
        """A pass that changes one part shares the arrays of the others."""
        computation = small_computation()
        changed = attrs.evolve(computation, command_table=computation.command_table[:5])

        assert changed.indexes[0] is computation.indexes[0]
        assert PROGRAM[:5] == list(changed.commands)


class TestDerived:
    """Values derived from commands."""

    def test_commands_view(self) -> None:
        """Commands are available as objects: one, some or all of them."""
        view = small_computation().commands

        assert view[2] == PROGRAM[2]
        assert view[-1] == PROGRAM[-1]
        assert view[2:4] == PROGRAM[2:4]
        assert list(view) == PROGRAM

    def test_input_output_info(self) -> None:
        """Values come before the marker, derivatives after it."""
        assert small_computation().input_output_info == {0: (1, 0), 3: (2, 3)}

    def test_forward_segments(self) -> None:
        """A loop's last segment has the way back; what follows the last marker is no segment."""
        label, marker = commands.NoOperationLabel(), commands.NoOperationMarker()
        looped = [marker, label, marker, label, marker, commands.GotoLabel(label=3)]

        assert small_computation().forward_segments == ((range(5),), None)
        assert small_computation(command_table=command_table(PROGRAM[:4])).forward_segments == (
            (range(4),),
            None,
        )
        assert small_computation(command_table=command_table(looped)).forward_segments == (
            (range(1), range(1, 3), range(3, 6)),
            2,
        )

    def test_forward_end_is_the_marker(self) -> None:
        """The forward part ends at the marker."""
        assert small_computation().forward_end == 4

    def test_whole_submatrices(self) -> None:
        """Every matrix has a submatrix that is all of it."""
        assert small_computation().whole_submatrices.tolist() == [0, 1, 2, 3]


INFINITE = command_table([commands.MatrixAdd(output=1, input=2)])
INFINITE[0, ALPHA_COLUMN] = alpha_bits(np.inf)


class TestDebugInfo:
    """A minibatch's cindexes are stored once for all sequences."""

    def test_sequences_fastest(self) -> None:
        """By default, the rows of one frame are consecutive."""
        info = MatrixDebugInfo(pattern=[[5, 0, 7, 0], [5, 0, 8, 0]], sequences=[0, 1])

        assert info.num_rows == 4
        assert info.cindexes.tolist() == [[5, 0, 7, 0], [5, 1, 7, 0], [5, 0, 8, 0], [5, 1, 8, 0]]

    def test_sequences_slowest(self) -> None:
        """The rows of one sequence can be consecutive instead."""
        info = MatrixDebugInfo(pattern=[[5, 0, 7, 0], [5, 0, 8, 0]], sequences=[0, 3], block=2)

        assert info.cindexes.tolist() == [[5, 0, 7, 0], [5, 0, 8, 0], [5, 3, 7, 0], [5, 3, 8, 0]]

    @pytest.mark.parametrize("block", [1, 2, 3, 6])
    def test_some_rows(self, block: int) -> None:
        """Single rows are made without the others, in any order."""
        pattern = [[5, 0, t, 0] for t in range(6)]
        info = MatrixDebugInfo(pattern=pattern, sequences=[0, 3, 4], block=block)

        assert info.cindexes_of(5, 16).tolist() == info.cindexes[5:16].tolist()

    def test_equal_by_what_they_mean(self) -> None:
        """A pattern equals the list that it stands for."""
        info = MatrixDebugInfo(pattern=[[5, 0, 7, 0]], sequences=[0, 1])

        assert info == MatrixDebugInfo(pattern=info.cindexes)
        assert info != MatrixDebugInfo(pattern=info.cindexes, is_deriv=True)

    def test_made_when_asked_for(self) -> None:
        """The compiler's debug info equals a tuple of the same entries."""
        cindexes = np.array([[5, 0, t, 0] for t in range(6)], np.int32)
        cindexes.flags.writeable = False
        infos = DebugInfoOfRows(
            cindexes=cindexes,
            begin=np.array([0, 2], np.int32),
            rows=np.array([2, 4], np.int32),
            block=np.array([1, 2], np.int32),
            is_deriv=np.array([False, True]),
            sequences=np.array([0, 3], np.int32),
        )
        expected = (
            MatrixDebugInfo(pattern=()),
            MatrixDebugInfo(pattern=cindexes[:2], sequences=[0, 3]),
            MatrixDebugInfo(pattern=cindexes[2:], sequences=[0, 3], block=2, is_deriv=True),
        )

        assert len(infos) == 3
        assert infos == expected
        assert expected == infos
        assert infos[1:] == expected[1:]
        assert infos != expected[:2]
        assert infos[2].cindexes.tolist() == expected[2].cindexes.tolist()
        computation = small_computation(matrix_debug_info=[*infos, MatrixDebugInfo(pattern=())])
        assert NnetComputation(matrices=[[0, 0], [4, 3], [8, 3]], matrix_debug_info=infos) == (
            NnetComputation(matrices=[[0, 0], [4, 3], [8, 3]], matrix_debug_info=expected)
        )
        assert computation.matrix_debug_info[:3] == infos


def test_a_computation_is_made_from_nothing() -> None:
    """Matrices, parts and lists have the numbers that commands name."""
    builder = ComputationBuilder()
    given, wanted = builder.matrix(3, 4), builder.matrix(3, 4)
    left, right = (builder.part(wanted, columns=each) for each in ((0, 2), (2, 4)))
    reverse = builder.indexes([2, 1, 0])
    builder.add(commands.AcceptInput(matrix=given, node=0))
    builder.add([commands.AllocMatrixUndefined(matrix=wanted)])
    builder.add(
        commands.MatrixCopy(output=left, input=builder.part(given, columns=(2, 4)), alpha=2.0)
    )
    source = builder.part(given, columns=(0, 2))
    builder.add(commands.CopyRows(output=right, input=source, indexes=reverse, alpha=1.0))
    builder.add(
        [commands.DeallocMatrix(matrix=given), commands.ProvideOutput(matrix=wanted, node=1)]
    )
    builder.add(commands.NoOperationMarker())

    text = format_computation(builder.build(), identity(4))

    assert text.splitlines()[-7:-1] == [
        "c0: m1 = accept input",
        "c1: m2 = undefined",
        "c2: m2(:, 0:1) = 2.0 * m1(:, 2:3)",
        "c3: m2(:, 2:3) = m1(:, 0:1)[i0]",
        "c4: free m1",
        "c5: provide output = m2",
    ]


def test_what_is_there_is_not_added_again() -> None:
    """Equal parts and lists get one number; rebuilding gives an equal computation."""
    computation = compile_computation(identity(4), request_for(range(3), range(3)))
    builder = ComputationBuilder(computation)

    assert builder.part(1) == 1
    assert builder.indexes([0, 2]) == builder.indexes([0, 2])
    assert builder.indexes_multi([(1, 0)]) == builder.indexes_multi([(1, 0)])
    assert builder.indexes_ranges([(0, 1)]) == builder.indexes_ranges([(0, 1)])
    assert ComputationBuilder(computation).build() == computation
