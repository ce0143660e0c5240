"""Each command gives the result of its definition, which is the reference runtime."""

from typing import Any

import numpy as np
import pytest
from exported_programs import defined, session_of
from nnet3_computation import commands as c
from nnet3_runtime_onnx import OnnxComputer, to_onnx
from small_networks import computation, identity, program_of

GIVEN = np.arange(24, dtype=np.float32).reshape(6, 4) + 1
ONES = [c.AllocMatrixUndefined(matrix=2), c.SetConst(output=2, alpha=1.0)]
PLACES = [(4, 1), (5, 0), (-1, -1), (4, 0), (5, 2), (5, 1)]
PARTS = [(2, 0, 6, 0, 2), (1, 0, 3, 0, 2), (1, 2, 3, 2, 2)]
TARGETS = [(4, 1), (-1, -1), (3, 0), (3, 2), (-1, -1), (-1, -1)]
HALVES = [(2, 0, 3, 0, 4), (2, 3, 3, 0, 4)]
SWAPPED = [
    c.SwapMatrix(destination=4, source=2),
    c.AllocMatrixUndefined(matrix=3),
    c.MatrixCopy(output=3, input=1),
    c.MatrixAdd(output=4, input=3),
    c.DeallocMatrix(matrix=3),
]

CASES: dict[str, tuple[list[c.Command], dict[str, Any]]] = {
    "copy": ([*ONES, c.MatrixCopy(output=2, input=1, alpha=-2.0)], {}),
    "add": ([*ONES, c.MatrixAdd(output=2, input=1, alpha=0.5)], {}),
    "add to zeros": (
        [c.AllocMatrixZeroed(matrix=2), c.MatrixAdd(output=2, input=1, alpha=0.5)],
        {},
    ),
    "parts of matrices": (
        [*ONES, c.MatrixCopy(output=4, input=3)],
        {"parts": [(1, 1, 3, 0, 2), (2, 2, 3, 1, 2)]},
    ),
    "swap": ([*ONES, *SWAPPED], {"matrices": [(6, 4)] * 3}),
    **{
        f"{kind.__name__} {rows}": (
            [*ONES, kind(output=2, input=1, indexes=0, alpha=2.0)],
            {"indexes": [rows], "matrices": [(len(rows), 4)]},
        )
        for kind, rows in (
            (c.CopyRows, [0, 1, 2, 3, 4, 5]),
            (c.CopyRows, [1, 3, 5]),
            (c.CopyRows, [5, 4, 3]),
            (c.CopyRows, [2, 2, 2]),
            (c.CopyRows, [0, -1, 1]),
            (c.CopyRows, [-1, -1]),
            (c.CopyRows, [4, 0, 1, 4]),
            (c.AddRows, [3, -1, 3]),
        )
    },
    **{
        kind.__name__: (
            [*ONES, kind(output=3, indexes_multi=0, alpha=3.0)],
            {"indexes_multi": [PLACES], "parts": PARTS},
        )
        for kind in (c.CopyRowsMulti, c.AddRowsMulti)
    },
    **{
        kind.__name__: (
            [*ONES, kind(input=1, indexes_multi=0, alpha=2.0)],
            {"indexes_multi": [TARGETS], "parts": HALVES},
        )
        for kind in (c.CopyToRowsMulti, c.AddToRowsMulti)
    },
    **{
        f"AddRowRanges {ranges}": (
            [*ONES, c.AddRowRanges(output=2, input=1, indexes_ranges=0, alpha=2.0)],
            {"indexes_ranges": [ranges], "matrices": [(len(ranges), 4)]},
        )
        for ranges in (  # each of them is summed by another method
            [(0, 2), (2, 4), (4, 6)],
            [(0, 1), (3, 4), (-1, -1)],
            [(0, 6), (0, 6), (1, 3), (-1, -1)],
            [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6)],
            [(1, 2), (2, 3), (0, 6), (2, 6), (2, 4), (3, 6)],
            [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6)],
        )
    },
}
"""Commands with their lists and parts; the output is as large as the input, if nothing is said."""


@pytest.mark.parametrize(("commands", "more"), CASES.values(), ids=CASES)
def test_commands(commands: list[c.Command], more: dict[str, Any]) -> None:
    """Small numbers, which are exact, are those of the definition."""
    program = program_of(GIVEN, commands=commands, **{"matrices": [(6, 4)], **more})

    found = OnnxComputer(identity(4), program).forward({"input": GIVEN})

    expected = defined(identity(4), program, {"input": GIVEN})
    np.testing.assert_array_equal(found["output"], expected["output"])


def test_a_round_frees_what_the_start_kept() -> None:
    """A matrix that exists before a round, which accepts it again and frees it, is no state."""
    rounds = [
        c.AcceptInput(matrix=1, node=0),
        c.MatrixCopy(output=2, input=1),
        c.ProvideOutput(matrix=2, node=1),
        c.NoOperationMarker(),
    ]
    program = [
        c.AllocMatrixUndefined(matrix=2),
        *rounds,
        c.NoOperationLabel(),
        *rounds[:2],
        c.DeallocMatrix(matrix=1),
        *rounds[2:],
        c.GotoLabel(label=5),
    ]
    computer = OnnxComputer(identity(2), computation([(3, 2)] * 2, program))

    for number in range(3):
        rows = GIVEN[:3, :2] + number
        np.testing.assert_array_equal(computer.forward({"input": rows})["output"], rows)


def test_a_second_segment_copies_rows_that_nothing_reads() -> None:
    """A matrix of the first segment without used rows is not state, but exists."""
    program = [
        c.AcceptInput(matrix=1, node=0),
        c.AllocMatrixZeroed(matrix=2),
        c.MatrixCopy(output=2, input=1),
        c.ProvideOutput(matrix=2, node=1),
        c.NoOperationMarker(),
        c.AcceptInput(matrix=3, node=0),
        c.AllocMatrixZeroed(matrix=4),
        c.MatrixCopy(output=4, input=2),
        c.MatrixCopy(output=4, input=3),
        c.ProvideOutput(matrix=4, node=1),
        c.NoOperationMarker(),
    ]
    computer = OnnxComputer(identity(2), computation([(3, 2)] * 4, program))

    for number in range(2):
        rows = GIVEN[:3, :2] + number
        np.testing.assert_array_equal(computer.forward({"input": rows})["output"], rows)


ROWS, COLUMNS = 7, 5
COUNT = 3
"""Number of matrices besides the input."""


def random_commands(seed: int) -> tuple[list[c.Command], dict[str, Any]]:
    """Commands on parts of matrices, with the parts and lists that they name."""
    rng = np.random.default_rng(seed)
    commands: list[c.Command] = [c.AllocMatrixZeroed(matrix=2 + k) for k in range(COUNT)]
    more: dict[str, Any] = {"parts": [], "indexes": [], "indexes_multi": []}

    def part(matrix: int, rows: int, columns: int) -> int:
        row, column = rng.integers(ROWS - rows + 1), rng.integers(COLUMNS - columns + 1)
        more["parts"].append((matrix, row, rows, column, columns))
        return 1 + COUNT + len(more["parts"])

    def listed(kind: str, values: Any) -> dict[str, int]:
        more[kind].append(values)
        return {kind: len(more[kind]) - 1}

    for _ in range(25):
        rows, columns = rng.integers(1, ROWS + 1), rng.integers(1, COLUMNS + 1)
        target = 2 + rng.integers(COUNT)
        others = [each for each in range(1, 2 + COUNT) if each != target]
        source = rng.choice(others)
        to = {"output": part(target, rows, columns), "alpha": float(rng.choice([1, 1, 1, -1, 2]))}
        match rng.choice(["const", "copy", "add", "rows", "multi"]):
            case "const":
                commands.append(c.SetConst(**to))
            case "copy":
                commands.append(c.MatrixCopy(**to, input=part(source, rows, columns)))
            case "add":
                commands.append(c.MatrixAdd(**to, input=part(source, rows, columns)))
            case "rows":
                height = rng.integers(1, ROWS + 1)
                chosen = listed("indexes", rng.integers(-1, height, rows))
                commands.append(c.CopyRows(**to, **chosen, input=part(source, height, columns)))
            case _:
                numbers = rng.choice([part(each, 2, columns) for each in others], rows)
                pairs = np.stack([numbers, rng.integers(0, 2, rows)], axis=1)
                commands.append(c.CopyRowsMulti(**to, **listed("indexes_multi", pairs)))
    return commands, more


@pytest.mark.parametrize("leading", [None, 3, "sequences"])
@pytest.mark.parametrize("seed", range(20))
def test_random_parts(seed: int, leading: int | str | None) -> None:
    """Matrices written and read in parts, in random order, with and without a leading axis."""
    given = np.random.default_rng(seed).integers(-3, 4, (ROWS, COLUMNS)).astype(np.float32)
    commands, more = random_commands(seed)
    program = program_of(given, [(ROWS, COLUMNS)] * COUNT, commands, **more)
    nnet = identity(COLUMNS)
    expected = defined(nnet, program, {"input": given})["output"]
    inputs = given if leading is None else np.stack([given, 2 * given, given])

    model = to_onnx(nnet, program, sequences=leading)

    [found] = session_of(model).run(["output"], {"input": inputs})
    np.testing.assert_array_equal(found if leading is None else found[0], expected)
