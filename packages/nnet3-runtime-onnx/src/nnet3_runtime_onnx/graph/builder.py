"""GraphBuilder: collects nodes, constants, inputs and outputs, and makes a model of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from nnet3_runtime_onnx.errors import ExportError

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
        yield
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
        key = ("integers", array.shape, array.tobytes())
        if key not in self._known:
            name = self.free_name("integers/" + "_".join(map(str, array.ravel()[:4].tolist())))
            self._known[key] = self.constant_of(name, array)
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
        yield
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
