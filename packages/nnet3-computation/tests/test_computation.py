"""NnetComputation: its errors, and the values that it derives from commands."""

import copy
import pickle
from typing import Any

import attrs
import numpy as np
import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationError, ComputationRequest, IoSpecification, commands
from nnet3_computation.commands import command_table
from nnet3_computation.commands.declaration import ALPHA_COLUMN, alpha_bits
from nnet3_computation.computation import NnetComputation
from nnet3_computation.computation.parts import DebugInfoOfRows, MatrixDebugInfo
from nnet3_computation.computation.storage import StoredComputation
from nnet3_descriptors import parse_config

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

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("matrices", "abc", "matrices: expected integers, found <U3"),
            ("submatrices", [[2**40] * 5], "submatrices: a value does not fit in 32 bits"),
            ("indexes", 5, "indexes: 'int' object is not iterable"),
            ("steps", [[0, 1], [2]], "steps: .* inhomogeneous shape"),
        ],
    )
    def test_fields_of_another_type(self, field: str, value: Any, message: str) -> None:
        """A value of a wrong type is refused with the name of the field."""
        with pytest.raises(ComputationError, match=message):
            NnetComputation(**{field: value})

    def test_equal_by_content(self) -> None:
        """Equal parts make equal computations with equal hashes."""
        assert small_computation() == small_computation()
        assert hash(small_computation()) == hash(small_computation())
        assert small_computation() != small_computation(indexes=[[0, -1, 2]])

    def test_copied_and_pickled(self) -> None:
        """A computation is the same in another process, and as a copy."""
        nnet = parse_config("input-node name=input dim=3\noutput-node name=output input=input\n")
        compiled = compile_computation(
            nnet,
            ComputationRequest(
                inputs=[IoSpecification.from_range("input", 0, 4)],
                outputs=[IoSpecification.from_range("output", 0, 4)],
            ),
        )

        for other in (
            pickle.loads(pickle.dumps(compiled)),  # noqa: S301, bytes of our own
            copy.deepcopy(compiled),
        ):
            assert other == compiled
            other.check_network(nnet)

    def test_steps_by_node(self) -> None:
        """Steps have node names; steps without rows are left out."""
        nnet = parse_config("input-node name=a dim=3\noutput-node name=b input=a")
        computation = small_computation(steps=[[0, 4], [1, 0], [1, 4]])

        assert computation.steps_by_node(nnet) == [("a", 4), ("b", 4)]
        assert small_computation().steps_by_node(nnet) == []

    def test_steps_of_another_network(self) -> None:
        """A network that lacks a node of the computation is refused."""
        nnet = parse_config("input-node name=a dim=3\noutput-node name=b input=a")
        message = "of another network: it uses node 2, this network has 2"

        with pytest.raises(ComputationError, match=message):
            small_computation(steps=[[0, 4], [2, 4]]).steps_by_node(nnet)

    @pytest.mark.parametrize(
        ("outputs", "message"),
        [
            (("b",), "it uses node 3, this network has 2"),
            (("b", "c", "d"), "it uses component 0, this network has 0"),
        ],
    )
    def test_network_of_the_commands(self, outputs: tuple[str, ...], message: str) -> None:
        """A network must have the nodes and components that commands name."""
        lines = [f"output-node name={name} input=a" for name in outputs]
        nnet = parse_config("\n".join(["input-node name=a dim=3", *lines]))

        with pytest.raises(ComputationError, match=message):
            small_computation().check_network(nnet)

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


class TestInvalid:
    """Contradictory computations cannot be made; the message names the place."""

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"matrices": [[1, 1]]}, r"matrices\[0\] must be the empty matrix"),
            ({"matrices": [*MATRICES[:3], [4, 0]]}, r"matrices\[3\] is empty: \[4, 0\]"),
            (
                {"submatrices": [*SUBMATRICES[:4], [1, 3, 2, 0, 2]]},
                r"submatrices\[4\] = \[1, 3, 2, 0, 2\].* does not lie within one of the 3 matrices",
            ),
            ({"submatrices": [*SUBMATRICES[:4], [7, 0, 1, 0, 1]]}, r"submatrices\[4\]"),
            ({"command_table": np.full((1, 9), 99)}, r"commands\[0\] has the unknown opcode 99"),
            ({"command_table": np.zeros((1, 4), np.int32)}, r"shape \(rows, 9\) \(got \(1, 4\)\)"),
            (
                {"command_table": command_table([commands.MatrixAdd(output=1, input=8)])},
                r"commands\[0\]: MatrixAdd.input = 8 is out of range: there are 5",
            ),
            (
                {"command_table": command_table([commands.DeallocMatrix(matrix=4)])},
                r"DeallocMatrix.matrix = 4 does not cover a whole matrix",
            ),
            (
                {"command_table": command_table([commands.SwapMatrix(destination=1, source=4)])},
                r"SwapMatrix.source = 4 does not cover a whole matrix",
            ),
            (
                {"command_table": command_table([*PROGRAM, commands.GotoLabel(label=2)])},
                r"commands\[8\]: GotoLabel.label = 2 is not the position of a NoOperationLabel",
            ),
            (
                {
                    "command_table": command_table([commands.NoOperation()])
                    + np.eye(9)[8].astype(int)
                },
                r"commands\[0\]: NoOperation has a value in an unused column",
            ),
            ({"command_table": INFINITE}, r"commands\[0\] has the scale inf, expected a finite"),
            ({"indexes": [[0, -2]]}, r"indexes\[0\]"),
            ({"indexes_multi": [[[1, 4]]]}, r"indexes_multi\[0\]\[0\] = \[1, 4\] is no row"),
            ({"indexes_ranges": [[[3, 1]]]}, r"indexes_ranges\[0\]\[0\] = \[3, 1\] is no range"),
            ({"steps": [[0, 4], [-1, 4]]}, r"steps\[1\] = \[-1, 4\]: expected a node"),
            ({"precomputed_indexes": ()}, r"precomputed_indexes\[0\] must be None"),
            ({"matrix_debug_info": [MatrixDebugInfo(pattern=[])]}, "each of the 4 matrices"),
            ({"need_model_derivative": 1}, "need_model_derivative: expected bool, found int"),
            ({"network": "x"}, "network: expected NetworkFingerprint, found str"),
            ({"requests": "x"}, "requests: expected RequestFingerprint, found str"),
            ({"memory_plan": 5}, "memory_plan: expected MemoryPlan, found int"),
            ({"precomputed_indexes": (None, 5)}, "precomputed_indexes: expected Precomputed"),
            ({"steps": np.ma.masked_array([[0, 4]], mask=True)}, "steps: .*a masked array"),
        ],
    )
    def test_refused(self, changes: dict[str, Any], message: str) -> None:
        """Each contradiction is refused with the place and the value."""
        with pytest.raises(ComputationError, match=message):
            small_computation(**changes)


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

    def test_debug_info_of_another_matrix(self) -> None:
        """Stored debug info must describe the computation's own matrices."""
        infos = [MatrixDebugInfo(pattern=[[5, 0, t, 0] for t in range(rows)]) for rows in (0, 4, 3)]
        computation = small_computation(matrix_debug_info=[*infos, MatrixDebugInfo(pattern=())])
        with pytest.raises(ComputationError, match="matrix 2 is of 3 rows, the matrix has 4"):
            NnetComputation.from_bytes(computation.to_bytes())

    def test_debug_info_of_no_node(self) -> None:
        """Stored debug info must name nodes."""
        info = MatrixDebugInfo(pattern=[[5, 0, 0, 0], [5, 0, 1, 0], [-1, 0, 2, 0], [5, 0, 3, 0]])
        infos = [*[MatrixDebugInfo(pattern=())] * 3, info]
        computation = small_computation(matrix_debug_info=infos)
        with pytest.raises(ComputationError, match="matrix 3 names a negative node"):
            NnetComputation.from_bytes(computation.to_bytes())

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("indexes_splits", 3, "indexes_splits must rise from 0 to 3"),
            ("indexes_splits", [[0, 3]], "indexes_splits must rise from 0 to 3"),
            ("indexes_splits", [0, 2], "indexes_splits must rise from 0 to 3"),
            ("indexes_splits", [0, 4, 3], "indexes_splits must rise from 0 to 3"),
            ("indexes", 5, "indexes must have rows"),
            ("debug_info", [0, 1], r"debug_info must have the shape \(matrices, 2\) \(got \(2,\)"),
            ("debug_info", [[0, 1]], "differ in length"),
        ],
    )
    def test_bytes_whose_lists_do_not_fit(self, field: str, value: Any, message: str) -> None:
        """Lists with invalid bounds, and tables of a wrong shape, are refused by name."""
        stored = StoredComputation.from_bytes(small_computation().to_bytes())
        spoiled = attrs.evolve(stored, **{field: np.array(value, np.int32)})

        with pytest.raises(ComputationError, match=message):
            NnetComputation.from_bytes(spoiled.to_bytes())

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

    def test_blocks_are_whole(self) -> None:
        """A pattern that is not a whole number of blocks is refused."""
        with pytest.raises(ComputationError, match="3 rows are no multiple of a block of 2"):
            MatrixDebugInfo(pattern=[[5, 0, t, 0] for t in range(3)], block=2)

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
