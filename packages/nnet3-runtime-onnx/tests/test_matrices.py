"""Matrices written and read in parts, in random order, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from exported_programs import program_of, session_of
from nnet3_computation import (
    AllocMatrixZeroed,
    Command,
    CopyRows,
    CopyRowsMulti,
    MatrixAdd,
    MatrixCopy,
    SetConst,
)
from nnet3_descriptors import set_test_mode
from nnet3_runtime_onnx import to_onnx
from small_networks import identity

ROWS, COLUMNS = 7, 5
COUNT = 3
"""Number of matrices besides the input."""


def random_program(
    seed: int,
) -> tuple[np.ndarray, list[Command], list[tuple[int, ...]], dict[str, list], np.ndarray]:
    """Commands on parts of matrices, and the resulting last matrix."""
    rng = np.random.default_rng(seed)
    given = rng.integers(-3, 4, (ROWS, COLUMNS)).astype(np.float32)
    values = {1: given, **{2 + k: np.zeros((ROWS, COLUMNS), np.float32) for k in range(COUNT)}}
    commands: list[Command] = [AllocMatrixZeroed(matrix=2 + k) for k in range(COUNT)]
    parts: list[tuple[int, ...]] = []
    lists: dict[str, list] = {"indexes": [], "indexes_multi": []}

    def part(matrix: int, rows: int, columns: int) -> tuple[int, np.ndarray]:
        row, column = rng.integers(ROWS - rows + 1), rng.integers(COLUMNS - columns + 1)
        parts.append((matrix, row, rows, column, columns))
        view = values[matrix][row : row + rows, column : column + columns]
        return len(values) + len(parts), view

    for _ in range(25):
        rows, columns = rng.integers(1, ROWS + 1), rng.integers(1, COLUMNS + 1)
        target = 2 + rng.integers(COUNT)
        source = rng.choice([each for each in values if each != target])
        output, written = part(target, rows, columns)
        alpha = float(rng.choice([1, 1, 1, -1, 2]))
        match rng.choice(["const", "copy", "add", "rows", "multi"]):
            case "const":
                commands.append(SetConst(output=output, alpha=alpha))
                written[:] = alpha
            case "copy" | "add" as kind:
                command = MatrixCopy if kind == "copy" else MatrixAdd
                number, read = part(source, rows, columns)
                commands.append(command(output=output, input=number, alpha=alpha))
                written[:] = (0 if kind == "copy" else written) + alpha * read
            case "rows":
                number, read = part(source, rng.integers(1, ROWS + 1), columns)
                chosen = rng.integers(-1, len(read), rows)
                commands.append(
                    CopyRows(
                        output=output, input=number, indexes=len(lists["indexes"]), alpha=alpha
                    )
                )
                lists["indexes"].append(chosen)
                written[:] = alpha * read[chosen] * (chosen >= 0)[:, None]
            case _:
                numbers = [part(each, 2, columns) for each in values if each != target]
                places = [
                    (int(rng.integers(len(numbers))), int(rng.integers(2))) for _ in range(rows)
                ]
                commands.append(
                    CopyRowsMulti(
                        output=output, indexes_multi=len(lists["indexes_multi"]), alpha=alpha
                    )
                )
                pairs = [(numbers[which][0], row) for which, row in places]
                lists["indexes_multi"].append(pairs)
                written[:] = alpha * np.stack([numbers[which][1][row] for which, row in places])
    return given, commands, parts, lists, values[1 + COUNT]


@pytest.mark.parametrize("leading", [None, 3, "sequences"])
@pytest.mark.parametrize("seed", range(20))
def test_random_parts(seed: int, leading: int | str | None) -> None:
    """Random copies give NumPy's results, with and without a leading axis."""
    given, commands, parts, lists, expected = random_program(seed)
    program = program_of(given, [(ROWS, COLUMNS)] * COUNT, commands, parts=parts, **lists)
    model = to_onnx(set_test_mode(identity(COLUMNS)), program, sequences=leading)
    inputs = given if leading is None else np.stack([given, 2 * given, given])

    [found] = session_of(model).run(["output"], {"input": inputs})

    np.testing.assert_array_equal(found if leading is None else found[0], expected)
