"""Regions: rows and columns of a matrix, and where each of their elements comes from.

Commands write parts of a matrix, but a graph makes a tensor only as a whole. So a matrix is a set
of strips of columns, side by side. A strip has for each row the tensor, the row in it, and the
first column in it. Writes change these numbers and copies copy them; neither makes a node. Only the
input of an operator has to become a tensor: see `reading`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import attrs
import numpy as np
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


NODE = 2000
"""The cost of a node, in elements that could be copied in the same time."""


@attrs.frozen(eq=False)
class _Piece:
    """A way to make some rows.

    Attributes:
        cost: In elements that are copied.
        make: Adds the nodes.
    """

    cost: int
    make: Callable[[], Tensor]


class Reader:
    """Makes a tensor of a region, only once for equal regions; has the sources by number."""

    def __init__(self, graph: GraphBuilder) -> None:
        """Begins with the source of zeros."""
        self._graph = graph
        self._tensors: list[Tensor] = []
        self._values = [0.0]
        self._known: dict[object, Tensor] = {}
        self._watched: dict[int, NDArray[np.bool_]] = {}

    def number_of(self, tensor: Tensor) -> int:
        """Returns the number of a new source that is a tensor."""
        self._tensors.append(tensor)
        return len(self._tensors)

    def number_of_value(self, value: float) -> int:
        """Returns the number of a source whose elements are all the same."""
        if value not in self._values:
            self._values.append(value)
        return -self._values.index(value)

    def computed_rows(self, number: int) -> int:
        """Returns the number of rows of a source that the model computes; 0 for its inputs."""
        tensor = self._tensors[number - 1]
        return tensor.shape[0] if self._graph.is_computed(tensor.name) else 0

    def watch(self, number: int) -> NDArray[np.bool_]:
        """Returns whether each row of a source was read, (rows,), which changes with each read."""
        rows = self._tensors[number - 1].shape[0]
        return self._watched.setdefault(number, np.zeros(rows, np.bool_))

    def tensor(self, region: Region) -> Tensor:
        """Returns the elements of a region as a tensor, (rows, columns)."""
        strips = region.merged().strips
        return concat([self._strip(strip.normalized()) for strip in strips], axis=-1)

    def _strip(self, strip: Strip) -> Tensor:
        key = (strip.width, strip.places.tobytes())
        if key not in self._known:
            for number, is_read in self._watched.items():
                is_read[strip.places[strip.places[:, SOURCE] == number, ROW]] = True
            self._known[key] = self._cheapest(strip).make()
        return self._known[key]

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
        cost = sum(piece.cost for piece in pieces) + NODE + elements
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
        cost = whole.cost + NODE + len(places) * width
        return _Piece(cost, lambda: whole.make().take(rows, axis=-2))

    def _piece(self, places: NDArray[np.int32], width: int) -> _Piece:
        """Returns the way to make rows of one source, from one column on."""
        number, column = places[0, [SOURCE, COLUMN]].tolist()
        rows, count = places[:, ROW], len(places)
        copied = NODE + count * width
        if number <= ZERO:
            value = constant(self._graph, self._values[-number])
            return _Piece(copied, lambda: repeated(value, (count, width)))
        tensor, columns = self._tensors[number - 1], range(column, column + width)
        step = int(rows[1] - rows[0]) if count > 1 else 1
        first = int(rows[0])
        if step > 0 and bool((np.diff(rows) == step).all()):
            wanted = range(first, first + step * (count - 1) + 1, step)
            is_whole = (count, width) == tensor.shape
            return _Piece(0 if is_whole else copied, lambda: tensor.slice(wanted, columns))
        low, high = int(rows.min()), int(rows.max()) + 1
        is_whole = (high - low, width) == tensor.shape
        cost = copied + (0 if is_whole else NODE + (high - low) * width)
        return _Piece(
            cost, lambda: tensor.slice(range(low, high), columns).take(rows - low, axis=-2)
        )
