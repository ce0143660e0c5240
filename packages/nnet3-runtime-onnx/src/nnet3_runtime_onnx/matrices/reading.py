"""From a region to a tensor: slices, concatenations or gathering, whichever is cheapest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_runtime_onnx.graph import GraphBuilder, Tensor, concat, constant, repeated
from nnet3_runtime_onnx.matrices.regions import COLUMN, ROW, SOURCE, ZERO, Region, Strip

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
