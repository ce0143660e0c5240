"""Tensors as values: an operation on a tensor adds nodes to its graph."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_runtime_onnx.graph.builder import GraphBuilder


@attrs.frozen(eq=False)
class Tensor:
    """A value of a graph: float32, of known shape but for leading axes.

    Axes are counted from 0 behind the leading axes, or from the end with negative numbers.

    Attributes:
        graph: The graph.
        name: Of the value or constant.
        shape: Its shape without the leading axes.
        is_led: Whether it has the leading axes of the graph; constants have none.
        image: The elements of (rows, columns) as (images, channels, rows, heights), where a column
            is a channel of a height, and channels are next to each other. None if there is no such
            tensor. Operations on single elements work on the image, and rows are made from it only
            where something reads rows. So neighbouring convolutions need no reordering between
            them.
    """

    graph: GraphBuilder
    name: str
    shape: tuple[int, ...]
    is_led: bool
    image: Tensor | None = None

    # ---- element by element ----

    def _with(self, operator: str, other: Tensor | float, *, swapped: bool = False) -> Tensor:
        other = constant(self.graph, other) if isinstance(other, int | float) else other
        pair = (other, self) if swapped else (self, other)
        if self.image is not None:
            images = [each.image if each.shape else each for each in pair]
            fits = (), self.image.shape
            names = [each.name for each in images if each is not None and each.shape in fits]
            if len(names) == len(pair):
                image = attrs.evolve(self.image, name=self.graph.node(operator, names))
                return image.as_rows_of_image(*self.shape)
        name = self.graph.node(operator, [each.name for each in pair])
        shape = np.broadcast_shapes(self.shape, other.shape)
        return Tensor(self.graph, name, shape, self.is_led or other.is_led)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self._with("Add", other)

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self._with("Sub", other)

    def __rsub__(self, other: float) -> Tensor:
        return self._with("Sub", other, swapped=True)

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self if other == 1.0 else self._with("Mul", other)

    def __rmul__(self, other: float) -> Tensor:
        return self * other

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self._with("Div", other)

    def maximum(self, other: Tensor | float) -> Tensor:
        """The greater of two, element by element."""
        return self._with("Max", other)

    def apply(self, operator: str, **attributes: int | float) -> Tensor:
        """An operator of one operand that keeps the shape, such as Tanh.

        Args:
            operator: Its type.
            attributes: Those of an operator that is not element by element, such as `axis`.
        """
        if self.image is not None and not attributes:
            return self.image.apply(operator).as_rows_of_image(*self.shape)
        name = self.graph.node(operator, [self.name], **attributes)
        return attrs.evolve(self, name=name, image=None)

    # ---- products and sums ----

    def __matmul__(self, other: Tensor) -> Tensor:
        name = self.graph.node("MatMul", [self.name, other.name])
        above = np.broadcast_shapes(self.shape[:-2], other.shape[:-2])
        shape = (*above, self.shape[-2], other.shape[-1])
        return Tensor(self.graph, name, shape, self.is_led or other.is_led)

    def reduce(self, operator: str, axis: int, *, keep: bool = False) -> Tensor:
        """A reduction along a negative axis, such as ReduceSum."""
        axes = self.graph.integers([axis])
        name = self.graph.node(operator, [self.name, axes], keepdims=int(keep))
        shape = list(self.shape)
        shape[axis : len(shape) + axis + 1] = [1] if keep else []
        return Tensor(self.graph, name, tuple(shape), self.is_led)

    def convolve(
        self,
        filters: Tensor,
        bias: Tensor,
        *,
        strides: tuple[int, int],
        dilations: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> Tensor:
        """A convolution of images.

        Args:
            filters: (channels out, channels in, ...) for images (images, channels in, ...).
            bias: (channels out,).
            strides: Along both axes of an image.
            dilations: Distances of neighbouring elements of a filter.
            pads: Zeros before both axes and behind both.
        """
        name = self.graph.node(
            "Conv",
            [self.name, filters.name, bias.name],
            kernel_shape=filters.shape[2:],
            strides=strides,
            dilations=dilations,
            pads=pads,
        )
        sizes = zip(self.shape[2:], filters.shape[2:], strides, dilations, strict=True)
        counts = (
            (size + pads[axis] + pads[axis + 2] - dilation * (taps - 1) - 1) // stride + 1
            for axis, (size, taps, stride, dilation) in enumerate(sizes)
        )
        return Tensor(self.graph, name, (self.shape[0], filters.shape[0], *counts), is_led=False)

    def normalize_channels(
        self, mean: Tensor, variance: Tensor, scale: Tensor, offset: Tensor, epsilon: float
    ) -> Tensor:
        """Images (images, channels, ...) with scale (x - mean) / sqrt(variance + epsilon) + offset.

        Args:
            mean: (channels,), as are the others.
            variance: At least 0.
            scale: The factor of the normalized values.
            offset: Added to the product.
            epsilon: Added to the variance.
        """
        operands = [each.name for each in (self, scale, offset, mean, variance)]
        name = self.graph.node("BatchNormalization", operands, epsilon=epsilon)
        return attrs.evolve(self, name=name)

    def pool_max(self, *, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        """The greatest elements of blocks of images, (images, channels, ...)."""
        name = self.graph.node("MaxPool", [self.name], kernel_shape=sizes, strides=strides)
        axes = zip(self.shape[2:], sizes, strides, strict=True)
        counts = ((size - block) // stride + 1 for size, block, stride in axes)
        return Tensor(self.graph, name, (*self.shape[:2], *counts), is_led=False)

    # ---- parts ----

    def slice(self, *ranges: range) -> Tensor:
        """A part along the last axes: one range, with a positive step, for each of them."""
        axes = range(-len(ranges), 0)
        cut = [
            (axis, wanted)
            for axis, wanted in zip(axes, ranges, strict=True)
            if wanted != range(self.shape[axis])
        ]
        if not cut:
            return self
        columns = [[wanted.start for _, wanted in cut], [wanted.stop for _, wanted in cut]]
        columns += [[axis for axis, _ in cut], [wanted.step for _, wanted in cut]]
        name = self.graph.node("Slice", [self.name, *map(self.graph.integers, columns)])
        shape = list(self.shape)
        for axis, wanted in cut:
            shape[axis] = len(wanted)
        return Tensor(self.graph, name, tuple(shape), self.is_led)

    def take(self, indexes: Sequence[int] | NDArray[np.integer], axis: int) -> Tensor:
        """Elements along a negative axis, by number."""
        numbers = np.asarray(indexes)
        name = self.graph.node("Gather", [self.name, self.graph.integers(numbers)], axis=axis)
        shape = list(self.shape)
        shape[axis] = len(numbers)
        return Tensor(self.graph, name, tuple(shape), self.is_led)

    # ---- shape ----

    def reshape(self, *shape: int) -> Tensor:
        """The same elements in another shape."""
        if shape == self.shape:
            return self
        leading = self.graph.leading_axes if self.is_led else 0
        sizes = self.graph.integers([0] * leading + list(shape))
        return Tensor(
            self.graph, self.graph.node("Reshape", [self.name, sizes]), shape, self.is_led
        )

    def transpose(self, *axes: int) -> Tensor:
        """The axes in another order."""
        leading = self.graph.leading_axes if self.is_led else 0
        order = (*range(leading), *(axis + leading for axis in axes))
        name = self.graph.node("Transpose", [self.name], perm=order)
        return Tensor(self.graph, name, tuple(self.shape[axis] for axis in axes), self.is_led)

    def as_images(self, *shape: int) -> Tensor:
        """Each row of (rows, columns) in this shape: `(images, *shape)`, without a leading axis."""
        sizes = self.graph.integers([-1, *shape])
        name = self.graph.node("Reshape", [self.name, sizes])
        return Tensor(self.graph, name, (-1, *shape), is_led=False)

    def as_image(self, *shape: int) -> Tensor:
        """All rows together in this shape: `(images, *shape)`, without a leading axis."""
        return self.as_images(*shape)

    def as_rows(self, rows: int, columns: int) -> Tensor:
        """The inverse of `as_images` and `as_image`: (rows, columns)."""
        graph = self.graph
        if graph.leading_axes < 2:
            sizes = graph.integers([-1] * graph.leading_axes + [rows, columns])
        else:
            sizes = graph.node(
                "Concat", [graph.leading_sizes(), graph.integers([rows, columns])], axis=0
            )
        name = graph.node("Reshape", [self.name, sizes])
        return Tensor(graph, name, (rows, columns), graph.leading_axes > 0)

    def as_rows_of_image(self, rows: int, columns: int) -> Tensor:
        """Images (images, channels, rows, heights) as (rows, columns), which keep the image."""
        return attrs.evolve(self.transpose(0, 2, 3, 1).as_rows(rows, columns), image=self)


def constant(graph: GraphBuilder, value: float) -> Tensor:
    """A number."""
    name = graph.constant(f"number/{value!r}", lambda: np.array(value, np.float32))
    return Tensor(graph, name, (), is_led=False)


def repeated(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A constant repeated to a shape, with the leading axes if the graph has any."""
    graph = tensor.graph
    sizes = graph.integers(shape)
    if graph.leading_axes:
        sizes = graph.node("Concat", [graph.leading_sizes(), sizes], axis=0)
    return Tensor(graph, graph.node("Expand", [tensor.name, sizes]), shape, graph.leading_axes > 0)


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors end to end along a negative axis; all with the leading axes or all without."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    name = first.graph.node("Concat", [each.name for each in tensors], axis=axis)
    shape = list(first.shape)
    shape[axis] = sum(each.shape[axis] for each in tensors)
    return Tensor(first.graph, name, tuple(shape), first.is_led)
