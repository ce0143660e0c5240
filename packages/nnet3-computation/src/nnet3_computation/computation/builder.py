"""Making computations by hand: matrices, parts of them, lists and commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.values import is_integer

from nnet3_computation.arrays import IntArray, frozen_array, pair_table, same
from nnet3_computation.commands import command_table, declaration
from nnet3_computation.computation.computation import NnetComputation
from nnet3_computation.computation.parts import NO_DEBUG_INFO, MatrixDebugInfo
from nnet3_computation.computation.tables import converted
from nnet3_computation.errors import ComputationError


class ComputationBuilder:
    """Adds to a computation, or begins a new one; `build` makes the result.

    Matrices, submatrices and lists of the computation keep their numbers. A submatrix or list that
    exists already is not added again.

    Attributes:
        commands: The commands, a list that may be changed in any way.
    """

    def __init__(self, computation: NnetComputation | None = None) -> None:
        """Begins with a computation, or with nothing."""
        self._origin = computation or NnetComputation()
        self.commands: list[declaration.Command] = list(self._origin.commands)
        self._matrices: list[tuple[int, ...]] = list(map(tuple, self._origin.matrices.tolist()))
        rows = map(tuple, self._origin.submatrices.tolist())
        self._submatrices: dict[tuple[int, ...], int] = {}
        self._rows: list[tuple[int, ...]] = []
        for row in rows:
            self._submatrices.setdefault(row, len(self._rows))
            self._rows.append(row)
        self._infos = list(self._origin.matrix_debug_info)
        self._lists: dict[str, list[IntArray]] = {
            name: list(getattr(self._origin, name))
            for name in ("indexes", "indexes_multi", "indexes_ranges")
        }
        self._precomputed = list(self._origin.precomputed_indexes)

    def __repr__(self) -> str:
        """Its size."""
        matrices = len(self._matrices) - 1
        return f"<ComputationBuilder: {len(self.commands)} commands, {matrices} matrices>"

    def matrix(self, rows: int, columns: int, info: MatrixDebugInfo = NO_DEBUG_INFO) -> int:
        """Adds a matrix, and a submatrix that is all of it.

        Args:
            rows: Its number of rows.
            columns: Its number of columns.
            info: The cindexes of its rows; ignored if the computation has no debug info.

        Returns:
            The number of the submatrix.
        """
        number = len(self._matrices)
        self._matrices.append((rows, columns))
        if self._infos:
            self._infos.append(info)
        return self._submatrix((number, 0, rows, 0, columns))

    def part(
        self,
        submatrix: int,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> int:
        """Returns the number of a submatrix that is some rows and columns of another.

        Args:
            submatrix: The number of the other.
            rows: The first row within it, and the row behind its last; None for all.
            columns: The same for columns.

        Raises:
            ComputationError: There is no such submatrix, or it has no such rows or columns.
        """
        submatrix = _integer("the number of a submatrix", submatrix)
        if not 0 < submatrix < len(self._rows):
            raise ComputationError(f"there is no submatrix {submatrix}")
        matrix, row, num_rows, column, num_columns = self._rows[submatrix]
        place = [matrix]
        for what, first, count, wanted in (
            ("rows", row, num_rows, rows),
            ("columns", column, num_columns, columns),
        ):
            begin, end = (0, count) if wanted is None else wanted
            begin, end = (_integer(f"the ends of {what}", each) for each in (begin, end))
            if not 0 <= begin < end <= count:
                raise ComputationError(
                    f"submatrix {submatrix} has {count} {what}, there are no {what} {begin} up to "
                    f"{end}"
                )
            place += [first + begin, end - begin]
        return self._submatrix(tuple(place))

    def indexes(self, rows: Any) -> int:
        """Returns the number of a list of rows; -1 for none.

        Raises:
            ComputationError: They are not integers of 32 bits.
        """
        return self._list("indexes", rows)

    def indexes_multi(self, pairs: Any) -> int:
        """Returns the number of a list of (submatrix, row) pairs; (-1, -1) for none.

        Raises:
            ComputationError: They are not integers of 32 bits.
        """
        return self._list("indexes_multi", pairs)

    def indexes_ranges(self, ranges: Any) -> int:
        """Returns the number of a list of (begin, end) pairs; (-1, -1) for none.

        Raises:
            ComputationError: They are not integers of 32 bits.
        """
        return self._list("indexes_ranges", ranges)

    def precomputed_indexes(self, indexes: PrecomputedIndexes) -> int:
        """Returns the number of a component's precomputed indexes."""
        if indexes not in self._precomputed:
            self._precomputed.append(indexes)
        return self._precomputed.index(indexes)

    def add(self, commands: declaration.Command | Iterable[declaration.Command]) -> None:
        """Adds commands at the end."""
        self.commands.extend([commands] if isinstance(commands, declaration.Command) else commands)

    def build(self) -> NnetComputation:
        """Returns the computation. It has no memory plan.

        Raises:
            ComputationError: The parts contradict each other.
        """
        return attrs.evolve(
            self._origin,
            matrices=self._matrices,
            submatrices=self._rows,
            command_table=command_table(self.commands),
            precomputed_indexes=tuple(self._precomputed),
            matrix_debug_info=tuple(self._infos),
            memory_plan=None,
            indexes=tuple(self._lists["indexes"]),
            indexes_multi=tuple(self._lists["indexes_multi"]),
            indexes_ranges=tuple(self._lists["indexes_ranges"]),
        )

    def _submatrix(self, row: tuple[int, ...]) -> int:
        number = self._submatrices.get(row)
        if number is None:
            number = self._submatrices[row] = len(self._rows)
            self._rows.append(row)
        return number

    def _list(self, name: str, wanted: Any) -> int:
        values = converted(name, frozen_array if name == "indexes" else pair_table, wanted)
        lists = self._lists[name]
        for number, known in enumerate(lists):
            if same(known, values):
                return number
        lists.append(values)
        return len(lists) - 1


def _integer(what: str, value: int) -> int:
    if not is_integer(value):
        raise ComputationError(f"expected {what} to be an integer, found {value!r}")
    return int(value)
