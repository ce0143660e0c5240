"""Matrices, as commands read and write them, and tensors made of their regions.

Commands write parts of a matrix, but a graph makes a tensor only as a whole. So a matrix is a set
of strips of columns, side by side. A strip has for each row the tensor, the row in it, and the
first column in it. Writes change these numbers and copies copy them; neither makes a node. Only the
input of an operator has to become a tensor: see `Matrices`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import attrs
import numpy as np
from nnet3_computation import ComputationError, NnetComputation
from numpy.typing import NDArray

from nnet3_runtime_onnx.graph import GraphBuilder, Tensor, concat, constant, repeated

Places = NDArray[np.int32]
"""(rows, 3): number of a source, row in it, column in it. Sources from 1 on are tensors; others are
values that all elements have, wherever they are."""

SOURCE, ROW, COLUMN = range(3)

ZERO = 0
"""The source of zeros, and of undefined elements."""


@attrs.frozen(eq=False)
class Strip:
    """Columns of a region.

    Attributes:
        width: Number of columns.
        places: Where the first element of each row is; the others follow it.
    """

    width: int
    places: Places

    @property
    def is_zero(self) -> bool:
        """Whether all its elements are zeros."""
        return bool((self.places[:, SOURCE] == ZERO).all())

    @property
    def is_of_one_source(self) -> bool:
        """Whether all its rows are of one source, from the same column on."""
        of_source = self.places[:, [SOURCE, COLUMN]]
        return bool((of_source == of_source[:1]).all())

    def normalized(self) -> Strip:
        """Returns the same elements, with equal numbers for equal elements."""
        places = self.places.copy()
        places[places[:, SOURCE] <= ZERO, ROW:] = 0
        return Strip(self.width, places)

    def cut(self, begin: int, end: int) -> Strip:
        """Returns columns of the strip."""
        if (begin, end) == (0, self.width):
            return self
        places = self.places.copy()
        places[:, COLUMN] += begin
        return Strip(end - begin, places)


@attrs.frozen(eq=False)
class Region:
    """Strips side by side, all with the same number of rows.

    Attributes:
        strips: The strips; a region without columns has one strip without columns.
    """

    strips: tuple[Strip, ...]

    @classmethod
    def of_source(cls, number: int, rows: int, columns: int) -> Region:
        """The whole of a source; or a part of a source whose elements are all the same."""
        places = np.zeros((rows, 3), np.int32)
        places[:, SOURCE] = number
        places[:, ROW] = np.arange(rows)
        return cls((Strip(columns, places),))

    @classmethod
    def side_by_side(cls, regions: Sequence[Region]) -> Region:
        """Regions of equal height, side by side."""
        return cls(tuple(strip for region in regions for strip in region.strips))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.strips[0].places)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return sum(strip.width for strip in self.strips)

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        """Which rows are zeros in all columns, (rows,)."""
        is_zero = np.ones(self.rows, np.bool_)
        for strip in self.strips:
            is_zero &= strip.places[:, SOURCE] == ZERO
        return is_zero

    def take(self, rows: NDArray[np.integer]) -> Region:
        """Returns rows by number; zeros for -1."""
        strips = []
        for strip in self.strips:
            places = strip.places[rows]
            places[rows < 0] = ZERO
            strips.append(Strip(strip.width, places))
        return Region(tuple(strips))

    def between(self, begin: int, end: int) -> Region:
        """Returns columns from `begin` to before `end`."""
        strips = []
        for first, strip in zip(self.starts(), self.strips, strict=True):
            low, high = max(begin - first, 0), min(end - first, strip.width)
            if low < high:
                strips.append(strip.cut(low, high))
        return Region(tuple(strips)) if strips else Region((self.strips[0].cut(0, 0),))

    def starts(self) -> list[int]:
        """Returns the first column of each strip."""
        return [0, *itertools.accumulate(strip.width for strip in self.strips[:-1])]

    def split(self, columns: Sequence[int]) -> Region:
        """Returns the region with a border between strips before each of these columns."""
        borders = sorted({*self.starts(), self.columns, *columns} - {0})
        begins = [0, *borders[:-1]]
        parts = [self.between(*both) for both in zip(begins, borders, strict=True)]
        return Region.side_by_side(parts)

    def with_rows(self, rows: NDArray[np.integer] | slice, other: Region) -> Region:
        """Returns the region with some rows replaced by rows of another region of equal width."""
        mine, theirs = self.split(other.starts()), other.split(self.starts())
        strips = []
        for old, new in zip(mine.strips, theirs.strips, strict=True):
            places = old.places.copy()
            places[rows] = new.places
            strips.append(Strip(old.width, places))
        return Region(tuple(strips))

    def merged(self) -> Region:
        """Returns the region with as few strips as possible."""
        strips = [self.strips[0]]
        for strip in self.strips[1:]:
            last = strips[-1]
            distance = strip.places - last.places
            goes_on = (distance == (0, 0, last.width)).all(axis=1)
            same = (distance[:, SOURCE] == 0) & (strip.places[:, SOURCE] <= ZERO)
            if (goes_on | same).all():
                strips[-1] = Strip(last.width + strip.width, last.places)
            else:
                strips.append(strip)
        return Region(tuple(strips))


_MANY_ROWS = 4
"""A source has many rows if it has at least so many times the rows of a strip."""

_NODE = 2000
"""The cost of a node, in elements that could be copied in the same time."""


class _Piece(NamedTuple):
    """A way to make some rows.

    Attributes:
        cost: In elements that are copied.
        make: Adds the nodes.
    """

    cost: int
    make: Callable[[], Tensor]


class Matrices:
    """The matrices of a computation, by number, and the sources of their elements, by number.

    It makes a tensor of a region only once for equal regions.
    """

    def __init__(self, graph: GraphBuilder, computation: NnetComputation | None = None) -> None:
        """Begins without any matrix; without a computation, there are only regions."""
        self._sizes: list[list[int]] = []
        self._submatrices: list[list[int]] = []
        if computation is not None:
            self._sizes = computation.matrices.tolist()
            self._submatrices = computation.submatrices.tolist()
        self._graph = graph
        self._regions: dict[int, Region] = {}
        self._sources: list[Tensor] = []
        self._values = [0.0]
        self._tensors: dict[object, Tensor] = {}
        self._watched: dict[int, tuple[int, NDArray[np.bool_]]] = {}
        self._products: dict[tuple[int, int, str, str], int] = {}

    # ---- whole matrices ----

    def matrix_of(self, submatrix: int) -> int:
        """Returns the number of the matrix of a submatrix."""
        return self._submatrices[submatrix][0]

    def allocate(self, submatrix: int) -> None:
        """Makes the whole matrix that a submatrix names, of zeros."""
        self.clear(self.matrix_of(submatrix))

    def clear(self, matrix: int) -> None:
        """Makes a matrix of zeros."""
        self._regions[matrix] = Region.of_source(ZERO, *self._sizes[matrix])

    def free(self, submatrix: int) -> None:
        """Forgets the whole matrix that a submatrix names."""
        self._regions.pop(self.matrix_of(submatrix), None)

    def move(self, source: int, destination: int) -> None:
        """Hands the content of the matrix of one submatrix to the matrix of another."""
        region = self._region(self.matrix_of(source))
        self.free(source)
        self._regions[self.matrix_of(destination)] = region

    def set_matrix(
        self, matrix: int, tensor: Tensor, rows: NDArray[np.integer] | None = None
    ) -> None:
        """Makes a matrix.

        Args:
            matrix: Its number.
            tensor: Its rows; the others are zeros.
            rows: Which rows they are; None for all.
        """
        region = self.region_of(tensor)
        if rows is not None:
            region = Region.of_source(ZERO, *self._sizes[matrix]).with_rows(rows, region)
        self._regions[matrix] = region

    def matrix_tensor(self, matrix: int, rows: NDArray[np.integer]) -> Tensor:
        """Returns rows of a matrix."""
        return self.tensor(self._region(matrix).take(rows))

    def _region(self, matrix: int) -> Region:
        if matrix not in self._regions:
            raise ComputationError(f"m{matrix} is not allocated")
        return self._regions[matrix]

    # ---- reads of matrices ----

    def watch(self, matrices: Iterable[int]) -> dict[int, NDArray[np.bool_]]:
        """Returns which rows of matrices have been read; each read changes the result.

        Args:
            matrices: Their numbers.
        """
        for matrix in matrices:
            number = int(self._region(matrix).strips[0].places[0, SOURCE])
            height = self._sources[number - 1].shape[0]
            self._watched[number] = matrix, np.zeros(height, np.bool_)
        return dict(self._watched.values())

    def origins(self) -> dict[int, NDArray[np.intp]]:
        """Returns which rows of the matrices are copies of rows of matrices that are watched.

        Returns:
            For each matrix that exists, ascending, (copies, 3): row of it, number of the other, row
            of that one.
        """
        found = {}
        for matrix, region in sorted(self._regions.items()):
            copies = [np.empty((0, 3), np.intp)]
            for strip in region.strips:
                for number, (source, _) in self._watched.items():
                    rows = np.flatnonzero(strip.places[:, SOURCE] == number)
                    origin = np.full(len(rows), source)
                    copies.append(np.stack([rows, origin, strip.places[rows, ROW]], axis=1))
            found[matrix] = np.unique(np.concatenate(copies), axis=0)
        return found

    # ---- regions ----

    def region_of(self, tensor: Tensor) -> Region:
        """Returns a tensor, (rows, columns), as a region."""
        self._sources.append(tensor)
        rows, columns = tensor.shape
        return Region.of_source(len(self._sources), rows, columns)

    def filled(self, value: float, shape: tuple[int, int]) -> Region:
        """Returns a region of equal elements."""
        if value not in self._values:
            self._values.append(value)
        return Region.of_source(-self._values.index(value), *shape)

    def shape(self, submatrix: int) -> tuple[int, int]:
        """Returns the rows and columns of a submatrix."""
        _, _, rows, _, columns = self._submatrices[submatrix]
        return rows, columns

    def read(self, submatrix: int) -> Region:
        """Returns a submatrix."""
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        region = self._region(matrix)
        if columns != self._sizes[matrix][1]:
            region = region.between(column, column + columns)
        return region if rows == self._sizes[matrix][0] else region.take(np.arange(row, row + rows))

    def write(self, submatrix: int, region: Region) -> None:
        """Sets the elements of a submatrix."""
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        height, width = self._sizes[matrix]
        if (rows, columns) != (height, width):
            whole = self._region(matrix)
            end = column + columns
            if rows != height:
                before = whole.between(column, end)
                region = before.with_rows(slice(row, row + rows), region)
            left = [whole.between(0, column)] if column else []
            right = [whole.between(end, width)] if end < width else []
            region = Region.side_by_side([*left, region, *right])
        self._regions[matrix] = region

    def read_rows(self, places: NDArray[np.int32], columns: int) -> Region:
        """Returns rows of several submatrices, zeros where there is none.

        Args:
            places: (rows, 2): submatrix, row; (-1, -1) for none.
            columns: Of each submatrix.
        """
        found = Region.of_source(ZERO, len(places), columns)
        for submatrix, chosen, rows in _by_submatrix(places):
            found = found.with_rows(chosen, self.read(submatrix).take(rows))
        return found

    def write_rows(self, places: NDArray[np.int32], region: Region) -> None:
        """Sets rows of several submatrices; see `read_rows`."""
        for submatrix, chosen, rows in _by_submatrix(places):
            before = self.read(submatrix)
            self.write(submatrix, before.with_rows(rows, region.take(chosen)))

    def sum(self, first: Region, second: Region, alpha: float = 1.0) -> Region:
        """Returns first + alpha * second; zeros are not added."""
        is_both = ~first.is_zero & ~second.is_zero
        result = first
        alone = np.flatnonzero(first.is_zero & ~second.is_zero)
        if len(alone):
            result = result.with_rows(alone, self.scaled(second.take(alone), alpha))
        both = np.flatnonzero(is_both)
        if len(both):
            terms = [first.take(both), second.take(both)]
            tensors = [self.tensor(term) for term in terms]
            result = result.with_rows(both, self.region_of(tensors[0] + tensors[1] * alpha))
        return result

    def scaled(self, region: Region, alpha: float) -> Region:
        """Returns alpha * region."""
        if alpha == 1.0 or region.is_zero.all():
            return region
        return self.region_of(self.tensor(region) * alpha)

    # ---- products of whole sources ----

    def is_few_of_many(self, strip: Strip, times: int) -> bool:
        """Whether a strip has only a few of the rows of a tensor.

        Args:
            strip: The strip.
            times: The number of strips of its size; together they must have at least half of the
                rows.
        """
        source = strip.places[0, SOURCE]
        if source <= ZERO or not strip.is_of_one_source:
            return False
        rows, there_are = len(strip.places), self._computed_rows(int(source))
        return _MANY_ROWS * rows <= there_are <= 2 * times * rows

    def product(self, strip: Strip, factor: Tensor, offset: Tensor | None) -> Region:
        """Returns a strip times a constant matrix, as rows of the product of its whole source.

        Args:
            strip: The strip.
            factor: The matrix.
            offset: A row that is added to each, if any.
        """
        source, column = strip.places[0, [SOURCE, COLUMN]].tolist()
        key = source, column, factor.name, "" if offset is None else offset.name
        if key not in self._products:
            end = column + strip.width
            whole = Region.of_source(source, self._computed_rows(source), end)
            whole = whole.between(column, end)
            product = self.tensor(whole) @ factor
            if offset is not None:
                product += offset
            self._sources.append(product)
            self._products[key] = len(self._sources)
        places = strip.places.copy()
        places[:, [SOURCE, COLUMN]] = self._products[key], 0
        return Region((Strip(factor.shape[-1], places),))

    def _computed_rows(self, source: int) -> int:
        """Returns the number of rows of a source that the model computes; 0 for its inputs."""
        tensor = self._sources[source - 1]
        return tensor.shape[0] if self._graph.is_computed(tensor.name) else 0

    # ---- tensors of regions ----

    def tensor(self, region: Region) -> Tensor:
        """Returns the elements of a region as a tensor, (rows, columns)."""
        strips = region.merged().strips
        return concat([self._strip(strip.normalized()) for strip in strips], axis=-1)

    def _strip(self, strip: Strip) -> Tensor:
        key = (strip.width, strip.places.tobytes())
        if key not in self._tensors:
            for number, (_, is_read) in self._watched.items():
                is_read[strip.places[strip.places[:, SOURCE] == number, ROW]] = True
            self._tensors[key] = self._cheapest(strip).make()
        return self._tensors[key]

    def _cheapest(self, strip: Strip) -> _Piece:
        """Returns the cheaper of two ways: pieces end to end, or rows gathered from sources."""
        places, width = strip.places, strip.width
        of_source = places[:, [SOURCE, COLUMN]]
        changes = np.flatnonzero((of_source[1:] != of_source[:-1]).any(axis=1)) + 1
        runs = [self._piece(part, width) for part in np.split(places, changes)]
        pieces = self._end_to_end(runs, len(places) * width)
        if len(runs) == 1:
            return pieces
        distinct, number = np.unique(of_source, axis=0, return_inverse=True)
        if len(distinct) == len(runs):
            return pieces
        gathered = self._gathered(places, width, number.reshape(-1), len(distinct))
        return min(pieces, gathered, key=lambda piece: piece.cost)

    def _end_to_end(self, pieces: Sequence[_Piece], elements: int) -> _Piece:
        if len(pieces) == 1:
            return pieces[0]
        cost = sum(piece.cost for piece in pieces) + _NODE + elements
        return _Piece(cost, lambda: concat([piece.make() for piece in pieces], axis=-2))

    def _gathered(
        self, places: NDArray[np.int32], width: int, number: NDArray[np.integer], count: int
    ) -> _Piece:
        """Rows of several sources that are put end to end.

        Args:
            places: The rows.
            width: Number of columns.
            number: For each row the number of its source.
            count: The number of sources.
        """
        parts = [places[number == each] for each in range(count)]
        lowest = np.array([part[:, ROW].min() for part in parts])
        highest = np.array([part[:, ROW].max() for part in parts])
        heights = highest - lowest + 1
        pieces = []
        for part, low, height in zip(parts, lowest, heights, strict=True):
            block = np.repeat(part[:1], height, axis=0)
            block[:, ROW] = low + np.arange(height)
            pieces.append(self._piece(block, width))
        starts = np.concatenate([[0], np.cumsum(heights)[:-1]])
        rows = starts[number] + places[:, ROW] - lowest[number]
        whole = self._end_to_end(pieces, int(heights.sum()) * width)
        cost = whole.cost + _NODE + len(places) * width
        return _Piece(cost, lambda: whole.make().take(rows, axis=-2))

    def _piece(self, places: NDArray[np.int32], width: int) -> _Piece:
        """Returns the way to make rows of one source, from one column on."""
        number, column = places[0, [SOURCE, COLUMN]].tolist()
        rows, count = places[:, ROW], len(places)
        copied = _NODE + count * width
        if number <= ZERO:
            value = constant(self._graph, self._values[-number])
            return _Piece(copied, lambda: repeated(value, (count, width)))
        tensor, columns = self._sources[number - 1], range(column, column + width)
        step = int(rows[1] - rows[0]) if count > 1 else 1
        first = int(rows[0])
        if step > 0 and bool((np.diff(rows) == step).all()):
            wanted = range(first, first + step * (count - 1) + 1, step)
            is_whole = (count, width) == tensor.shape
            return _Piece(0 if is_whole else copied, lambda: tensor.slice(wanted, columns))
        low, high = int(rows.min()), int(rows.max()) + 1
        is_whole = (high - low, width) == tensor.shape
        cost = copied + (0 if is_whole else _NODE + (high - low) * width)
        return _Piece(
            cost, lambda: tensor.slice(range(low, high), columns).take(rows - low, axis=-2)
        )


def _by_submatrix(
    places: NDArray[np.int32],
) -> Sequence[tuple[int, NDArray[np.intp], NDArray[np.int32]]]:
    """Returns for each submatrix that is named: its number, its places, and the rows there."""
    numbers = places[:, 0]
    return [
        (submatrix, chosen := np.flatnonzero(numbers == submatrix), places[chosen, 1])
        for submatrix in np.unique(numbers).tolist()
        if submatrix >= 0
    ]


_FEW_RANGES = 4
"""Up to so many ranges are summed one by one."""


def sums_of_ranges(matrices: Matrices, region: Region, ranges: NDArray[np.integer]) -> Region:
    """Returns in row i the sum of the rows of a region from begin_i to before end_i.

    Args:
        matrices: Make tensors of regions.
        region: The rows.
        ranges: (rows, 2): begin_i, end_i; an empty range gives zeros.
    """
    lengths = ranges[:, 1] - ranges[:, 0]
    if lengths.max(initial=0) <= 1:
        return region.take(np.where(lengths == 1, ranges[:, 0], -1))
    distinct, number = np.unique(ranges[lengths > 0], axis=0, return_inverse=True)
    of_row = np.full(len(ranges), -1)
    of_row[lengths > 0] = number.reshape(-1)
    strips = (Region((strip,)) for strip in region.merged().strips)
    sums = [matrices.region_of(_sums(matrices, strip, distinct)) for strip in strips]
    return Region.side_by_side(sums).take(of_row)


def _sums(matrices: Matrices, region: Region, ranges: NDArray[np.integer]) -> Tensor:
    """Returns the sums of ranges, ascending and none of them empty, in the cheapest way."""
    begins, ends = ranges.T
    low, high = int(begins[0]), int(ends.max())
    if len(ranges) <= _FEW_RANGES:
        parts = [region.take(np.arange(begin, end)) for begin, end in ranges.tolist()]
        terms = [matrices.tensor(part).reduce("ReduceSum", -2, keep=True) for part in parts]
        return concat(terms, axis=-2)
    rows = matrices.tensor(region.take(np.arange(low, high)))
    length = int(ends[0] - begins[0])
    if (begins == low + length * np.arange(len(ranges))).all() and (ends == begins + length).all():
        blocks = rows.reshape(len(ranges), length, region.columns)
        return blocks.reduce("ReduceSum", -2)
    numbers = np.arange(low, high)
    is_member = (begins[:, None] <= numbers) & (numbers < ends[:, None])
    members = rows.graph.equal("ranges", is_member.astype(np.float32))
    return Tensor(rows.graph, members, is_member.shape, is_led=False) @ rows
