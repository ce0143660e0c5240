"""A graph of standard operators while it is put together: its nodes, and tensors as values.

`GraphBuilder` collects nodes, constants, inputs and outputs, and makes a model of them. An
operation on a `Tensor` adds nodes to its graph.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from nnet3_runtime_onnx.errors import ExportError

__all__ = ["OPSET", "RUNTIMES", "GraphBuilder", "Tensor", "concat", "constant", "repeated"]

RUNTIMES: Mapping[int, str] = {18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18"}
"""The versions of the operators that a model can have, and for each the oldest version of ONNX
Runtime that runs it."""

OPSET = max(RUNTIMES)
"""The version of the operators that a model has unless told otherwise."""

MOST_BYTES = 2**31 - 1
"""The largest size of one file."""

Shape = Sequence[int | str]


class GraphBuilder:
    """A graph that grows. Equal nodes are made once, and so are constants of the same name.

    Attributes:
        leading: The size of the leading axis of all values, or its name if it may have any size;
            None if there is no such axis.
        leading_axes: The number of leading axes of values: 1 or 0, or 2 within `led_by`.
    """

    def __init__(self, leading: int | str | None = None, opset: int = OPSET) -> None:
        """Makes an empty graph.

        Args:
            leading: The size or name of the leading axis, if any.
            opset: The version of the operators, one of `RUNTIMES`.
        """
        self.leading = leading
        self.leading_axes = 0 if leading is None else 1
        self._opset = opset
        self._led_by: str | None = None
        self._nodes: list[onnx.NodeProto] = []
        self._known: dict[object, str] = {}
        self._constants: dict[str, onnx.TensorProto] = {}
        self._constant_names: dict[str, str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[tuple[str, str, Shape]] = []
        self._taken: dict[str, int] = {}
        self._scope = "rows"
        self._producers: dict[str, int] = {}

    @contextlib.contextmanager
    def named(self, scope: str) -> Iterator[None]:
        """Within, names of nodes begin with `scope`."""
        before, self._scope = self._scope, scope
        try:
            yield
        finally:
            self._scope = before

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Adds a node with one output, unless an equal node exists, and returns its output.

        Args:
            operator: The type of a standard operator.
            inputs: The names of values and constants.
            attributes: Of the operator: integers, reals, text, or tuples of such.
        """
        key = (operator, tuple(inputs), tuple(sorted(attributes.items())))
        if key not in self._known:
            name = self.free_name(f"{self._scope}/{operator}")
            self._producers[name] = len(self._nodes)
            self._nodes.append(
                helper.make_node(operator, list(inputs), [name], name=name, **attributes)
            )
            self._known[key] = name
        return self._known[key]

    def is_computed(self, name: str) -> bool:
        """Whether a node has this output; inputs and constants are given."""
        return name in self._producers

    def constant(self, name: str, make: Callable[[], NDArray[Any]]) -> str:
        """Adds a constant, unless there is one of this name, and returns its name in the graph.

        Args:
            name: Of the constant, the same for the same values. If an input or output has it, the
                constant's name gets a number behind it.
            make: Gives its values.
        """
        if name not in self._constant_names:
            with np.errstate(over="ignore"):  # infinite in single precision, as in other runtimes
                values = make()
            self._constant_names[name] = self.constant_of(self.free_name(name), values)
        return self._constant_names[name]

    def constant_shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a constant."""
        return tuple(self._constants[name].dims)

    def integers(self, values: Sequence[int] | NDArray[np.integer]) -> str:
        """Adds a list of integers, unless an equal one exists, and returns its name."""
        array = np.asarray(values, dtype=np.int64)
        return self.equal("integers/" + "_".join(map(str, array.ravel()[:4].tolist())), array)

    def equal(self, name: str, array: NDArray[Any]) -> str:
        """Adds a constant, unless this has added an equal one for the same name; returns its name.

        The name in the graph may have a number behind it.
        """
        key = (name, array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._known:
            self._known[key] = self.constant_of(self.free_name(name), array)
        return self._known[key]

    def constant_of(self, name: str, array: NDArray[Any]) -> str:
        """Adds a constant whose name is free."""
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def input(self, name: str, shape: Shape) -> str:
        """Adds an input of float32."""
        self.free_name(name)
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    @contextlib.contextmanager
    def led_by(self, value: str) -> Iterator[None]:
        """Within, values have two leading axes, those of `value`: sequences and frames."""
        before, self._led_by, self.leading_axes = self._led_by, value, 2
        try:
            yield
        finally:
            self._led_by, self.leading_axes = before, 1

    def leading_sizes(self) -> str:
        """Returns the sizes of the leading axes, as a list of integers.

        Raises:
            ExportError: there is no input that has them.
        """
        if self._led_by is not None:
            return self.node("Shape", [self._led_by], start=0, end=2)
        if isinstance(self.leading, int):
            return self.integers([self.leading])
        if not self._inputs:
            raise ExportError("a graph without inputs is not of any number of sequences")
        return self.node("Shape", [self._inputs[0].name], start=0, end=1)

    def output(self, name: str, value: str, shape: Shape) -> None:
        """Makes a value an output of float32.

        The name must have been kept free: see `reserve`.
        """
        self._outputs.append((name, value, shape))

    def reserve(self, names: Sequence[str]) -> None:
        """Keeps names free for outputs."""
        for name in names:
            self.free_name(name)

    def free_name(self, wanted: str) -> str:
        """Returns an unused name: the wanted one, or the wanted one with a number behind it."""
        name = wanted
        while name in self._taken:
            self._taken[wanted] += 1
            name = f"{wanted}_{self._taken[wanted]}"
        self._taken[name] = 1
        return name

    def model(self, name: str, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """Returns the graph as a model, checked, without nodes that no output needs.

        Args:
            name: Of the graph.
            metadata: The properties of the model, for programs that read it.

        Raises:
            ExportError: one file cannot hold it.
        """
        outputs = self._named_outputs()
        nodes, used = _needed(self._nodes, [info.name for info in outputs])
        constants = [tensor for key, tensor in self._constants.items() if key in used]
        graph = helper.make_graph(nodes, name, self._inputs, outputs, constants)
        model = helper.make_model(
            graph,
            producer_name="nnet3-runtime-onnx",
            opset_imports=[helper.make_opsetid("", self._opset)],
            ir_version=helper.find_min_ir_version_for([helper.make_opsetid("", self._opset)]),
        )
        properties = {"nnet3.least_onnxruntime": RUNTIMES[self._opset], **metadata}
        helper.set_model_props(model, properties)
        if model.ByteSize() > MOST_BYTES:
            raise ExportError(
                f"the model has {model.ByteSize()} bytes; a file of this format holds {MOST_BYTES}"
            )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _named_outputs(self) -> list[onnx.ValueInfoProto]:
        """Renames values that are outputs to the names of the outputs."""
        infos = []
        renamed: dict[str, str] = {}
        for name, value, shape in self._outputs:
            if value in self._producers and value not in renamed:
                renamed[value] = name
            else:  # it is an input, a constant, or also another output
                value = renamed.get(value, value)
                self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        for node in self._nodes:
            for names in (node.input, node.output):
                for place, each in enumerate(names):
                    if each in renamed:
                        names[place] = renamed[each]
        return infos


def _needed(
    nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """Returns the nodes that outputs depend on, and the names of all that they read."""
    used = set(outputs)
    kept = []
    for node in reversed(nodes):
        if node.output[0] in used:
            used.update(node.input)
            kept.append(node)
    return kept[::-1], used


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
        """Rows, each or all together, in this shape: `(images, *shape)`, without a leading axis."""
        sizes = self.graph.integers([-1, *shape])
        name = self.graph.node("Reshape", [self.name, sizes])
        return Tensor(self.graph, name, (-1, *shape), is_led=False)

    def as_rows(self, rows: int, columns: int) -> Tensor:
        """The inverse of `as_images`: (rows, columns)."""
        graph = self.graph
        if graph.leading_axes < 2:
            sizes = graph.integers([-1] * graph.leading_axes + [rows, columns])
        else:
            sizes = graph.node(
                "Concat", [graph.leading_sizes(), graph.integers([rows, columns])], axis=0
            )
        # There may be no frames; 0 is this number of them, then.
        name = graph.node("Reshape", [self.name, sizes], allowzero=int(graph.leading_axes == 2))
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
