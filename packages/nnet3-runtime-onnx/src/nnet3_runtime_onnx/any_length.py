"""to_onnx_of_any_length: a model of whole utterances, of any number of frames, from a network.

A computation has fixed numbers of rows, so this takes the network itself. In it, the value of a
node has a row for each frame from a first one on to one that is some frames before the last, both
the same for utterances of all lengths: what a node reads at an offset is a slice of these rows.
Rows have two leading axes, sequences and frames, so a component is translated for one row (and for
a row at each of its time offsets), as in models of computations. A sum over all frames ends this;
behind it, values have one row.
"""

from __future__ import annotations

import functools
import graphlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx
from nnet3_descriptors import (
    Component,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    Node,
    OutputNode,
    descriptors,
)
from nnet3_descriptors.components import (
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
)
from nnet3_descriptors.components.index_rules import AtOffsets, ClosedForm, has_closed_form
from nnet3_descriptors.indexes import NO_TIME, T, make_indexes

from nnet3_runtime_onnx import components, export
from nnet3_runtime_onnx.errors import ExportError
from nnet3_runtime_onnx.frames import FRAME_AXIS, Frames, cut, moved_axis, sliced
from nnet3_runtime_onnx.graph import OPSET, GraphBuilder, Tensor, concat, constant, repeated
from nnet3_runtime_onnx.matrices import ZERO, Matrices, Region

FRAMES, OUTPUT_FRAMES = "frames", "output_frames"
"""The names of the axes of frames of the inputs and of an output."""

IVECTOR = "ivector"
"""The input that has one row, at t = 0."""

OUTPUT = "output"

_MOVING = "reads a window that moves with the frames"


def to_onnx_of_any_length(
    nnet: Nnet,
    *,
    output_time: int | None = None,
    sequences: int | str = "sequences",
    opset: int = OPSET,
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """Returns a network as a model of standard operators for any number of frames.

    The inputs are (sequences, frames, columns), of the frames from t = 0 on; an input "ivector" is
    (sequences, 1, columns). The output is (sequences, rows, columns): the row at `output_time`, or
    a row for each frame from which the network sees all frames that it requires. The metadata say
    how many frames these are on both sides (left_context, right_context), and how many frames an
    utterance has at least (least_frames).

    Args:
        nnet: The network, in test mode. Its output "output" must not depend on itself, nor on
            windows that move with the frames.
        output_time: The time of the only row of the output, such as 0 for x-vectors, which pool
            over all frames; None for a row for each frame.
        sequences: The size of the leading axis, or its name if it may have any size.
        opset: The version of the operators.
        metadata: Properties of the model, beside those that describe it.

    Raises:
        ExportError: the network cannot be expressed so; the message names the node and why. Or
            `sequences`, `opset` or `metadata` is of another kind.
    """
    export.check_form(sequences, metadata, opset)
    if sequences is None:
        raise ExportError("'sequences' must be a number or a name for models of any length")
    if sequences in (FRAMES, OUTPUT_FRAMES):
        raise ExportError(
            f"'sequences' must be another name than those of the axes of frames (got {sequences!r})"
        )
    return _Utterance(nnet, sequences, opset).model(output_time, metadata or {})


_Value = Frames | Tensor
"""Rows by frame; or one row, (1, columns) led by sequences, that serves all frames."""


_Term = tuple[_Value, bool]
"""A term of a sum, and whether it is optional: zeros where it is missing."""


class _Utterance:
    """Makes the values of nodes."""

    def __init__(self, nnet: Nnet, sequences: int | str, opset: int) -> None:
        self._nnet = nnet
        self._graph = GraphBuilder(sequences, opset)
        self._frames: dict[str, _Value | ExportError] = {}
        self._rows: dict[tuple[str, int], Tensor] = {}
        self._input_sizes: dict[str, tuple[int | None, int]] = {}
        self._least = 1
        self._is_of_one_time = False

    def model(self, output_time: int | None, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """Returns the model; see `to_onnx_of_any_length`."""
        graph, nnet = self._graph, self._nnet
        self._is_of_one_time = output_time is not None
        graph.reserve([OUTPUT])
        for given in nnet.input_nodes:
            self._add_input(given)
        for node in self._needed():
            if node.name in self._frames:
                continue
            try:
                self._frames[node.name] = self._made(node, None)
            except ExportError as reason:
                self._frames[node.name] = reason
        left = right = 0
        if output_time is not None:
            value, rows = self._row(OUTPUT, output_time), 1
        else:
            found = self._frames_of(OUTPUT)
            if isinstance(found, Tensor):
                raise ExportError(f"'{OUTPUT}' reads no frame")
            # The network may require frames of one side alone. Optional terms read the others:
            # rows are of the frames that are given, and not of those beside them.
            left, right, rows = max(found.first, 0), max(found.behind, 0), None
            self._require(left + right + 1)
            value = moved_axis("Squeeze", cut(found, left, right, self._num_frames), -2)
        dim = nnet.node_dim(OUTPUT)
        assert graph.leading is not None
        graph.output(OUTPUT, value.name, [graph.leading, rows or OUTPUT_FRAMES, dim])
        numbers = {
            "left_context": left,
            "right_context": right,
            "frames_per_chunk": 0,
            "frame_subsampling_factor": 1,
            "least_frames": self._least,
        }
        properties = {f"nnet3.{name}": str(number) for name, number in numbers.items()}
        described = export.description(nnet, self._input_sizes, {OUTPUT: (rows, dim)})
        return graph.model("nnet3", {**described, **properties, **metadata})

    def _needed(self) -> Iterator[Node]:
        """Yields the nodes that the output depends on, each behind those that it reads."""
        sources: dict[str, tuple[str, ...]] = {}
        pending = [OUTPUT]
        while pending:
            name = pending.pop()
            if name not in sources:
                sources[name] = self._nnet.sources_of(self._nnet.node(name))
                pending += sources[name]
        try:
            for name in graphlib.TopologicalSorter(sources).static_order():
                yield self._nnet.node(name)
        except graphlib.CycleError as error:
            cycle = {*error.args[1]}
            names = [
                f"'{node.name}'"
                for node in self._nnet.nodes
                if node.name in cycle and not isinstance(node, ComponentInputNode)
            ]
            raise ExportError(
                "the network is recurrent, and each frame would need nodes of its own: "
                + ", ".join(names)
            ) from None

    def _add_input(self, node: InputNode) -> None:
        graph, name = self._graph, node.name
        assert graph.leading is not None
        is_one_row = name == IVECTOR
        self._input_sizes[name] = (1 if is_one_row else None, node.dim)
        value = graph.input(name, [graph.leading, 1 if is_one_row else FRAMES, node.dim])
        given = Tensor(graph, value, (1, node.dim), is_led=True)
        if is_one_row:
            self._rows[name, 0] = given
            self._frames[name] = ExportError(f"input '{name}' has a row at t = 0 alone")
        else:
            self._frames[name] = Frames(moved_axis("Unsqueeze", given, -2), 0, 0)

    def _require(self, frames: int) -> None:
        """Makes this the least number of frames of an utterance, if it is larger than before."""
        self._least = max(self._least, frames)

    # ---- values of nodes ----

    def _frames_of(self, name: str) -> _Value:
        found = self._frames[name]
        if isinstance(found, ExportError):
            raise found
        return found

    def _made(self, node: Node, time: int | None) -> _Value:
        """Returns the value of a node: at a time, or at all times.

        Raises:
            ExportError: it cannot be expressed so.
        """
        match node:
            case ComponentInputNode() | OutputNode():
                return self._joined(node.name, node.descriptor, time)
            case ComponentNode():
                if time is not None:
                    return self._component_row(node, time)
                return self._component(node, self._frames_of(self._nnet.input_of(node).name))
            case DimRangeNode():
                columns = range(node.dim_offset, node.dim_offset + node.dim)
                source: _Value = (
                    self._frames_of(node.source) if time is None else self._row(node.source, time)
                )
                if isinstance(source, Tensor):
                    return source.slice(columns)
                return attrs.evolve(source, tensor=source.tensor.slice(columns))
            case InputNode():
                return self._frames_of(node.name)

    def _row(self, name: str, time: int) -> Tensor:
        """Returns the row of a node at a time, (1, columns) led by sequences.

        Raises:
            ExportError: it cannot be expressed so.
        """
        if (name, time) not in self._rows:
            self._rows[name, time] = self._make_row(self._nnet.node(name), time)
        return self._rows[name, time]

    def _make_row(self, node: Node, time: int) -> Tensor:
        found = self._frames[node.name]
        if isinstance(found, Tensor):
            return found
        if isinstance(found, Frames):
            self._check_fixed(node, time)
            if time < found.first:
                raise ExportError(f"'{node.name}' cannot be computed at t = {time}")
            self._require(time + found.behind + 1)
            place = time - found.first
            return moved_axis("Squeeze", sliced(found.tensor, place, place + 1))
        value = self._made(node, time)
        assert isinstance(value, Tensor)
        return value

    def _check_fixed(self, node: Node, time: int) -> None:
        """Raises an ExportError if the output has all times, and so no frame is at a known one."""
        if not self._is_of_one_time:
            raise ExportError(f"'{node.name}' is read at t = {time}, and outputs have all times")

    # ---- descriptors ----

    def _joined(self, name: str, descriptor: descriptors.Descriptor, time: int | None) -> _Value:
        """Returns the input of a node: at a time, or at all times."""
        parts = [list(self._terms(name, part, time)) for part in descriptor.parts]
        required = [value for part in parts for value, is_optional in part if not is_optional]
        frames = [value for value in required if isinstance(value, Frames)]
        if not frames:
            if any(isinstance(value, Frames) for part in parts for value, _ in part):
                raise ExportError(
                    f"'{name}' has values at any time, also where there are no frames"
                )
            rows = [[value for value, _ in part if isinstance(value, Tensor)] for part in parts]
            return concat([_sum(each) for each in rows], axis=-1)
        first = max(each.first for each in frames)
        return self._append(parts, first, max(each.behind for each in frames))

    def _append(self, parts: Sequence[Sequence[_Term]], first: int, behind: int) -> Frames:
        """Returns sums of terms side by side, for the frames from `first` on."""
        of_parts: list[Tensor] = []
        for part in parts:
            values = [
                moved_axis("Unsqueeze", value)
                if isinstance(value, Tensor)
                else cut(value, first, behind, self._num_frames)
                for value, _ in part
            ]
            of_parts.append(_sum(values))
        is_framed = [any(isinstance(value, Frames) for value, _ in part) for part in parts]
        if not all(is_framed):
            with self._graph.led_by(of_parts[is_framed.index(True)].name):
                of_parts = [
                    value if framed else repeated(value, value.shape)
                    for value, framed in zip(of_parts, is_framed, strict=True)
                ]
        return Frames(concat(of_parts, axis=-1), first, behind)

    def _terms(
        self, name: str, part: descriptors.SumDescriptor, time: int | None
    ) -> Iterator[_Term]:
        """Yields the terms of a sum.

        Args:
            name: The node that has the sum.
            part: The sum.
            time: The time; None for all times.
        """
        if isinstance(part, descriptors.ForwardingDescriptor):
            yield self._read(name, part, time), False
        elif isinstance(part, descriptors.Const):
            yield repeated(constant(self._graph, part.value), (1, part.num_columns)), False
        elif isinstance(part, descriptors.IfDefined):
            if time is not None:
                raise ExportError(
                    f"'{name}' reads {part} at t = {time}, which short utterances may lack"
                )
            value = self._joined(name, descriptors.Descriptor((part.source,)), None)
            yield value, isinstance(value, Frames)
        elif isinstance(part, descriptors.Failover):
            raise ExportError(
                f"'{name}' reads {part}, whose choice depends on the number of frames"
            )
        else:
            for operand in part.operands:
                yield from self._terms(name, operand, time)

    def _read(self, name: str, leaf: descriptors.ForwardingDescriptor, time: int | None) -> _Value:
        """Returns what a leaf reads: at a time, or at all times."""
        offset, factor, below = 0, 1.0, leaf
        while below.sources:
            chosen = 0
            match below:
                case descriptors.Scale():
                    factor *= below.factor
                case descriptors.Offset(x_offset=0):
                    offset, time = (
                        (offset + below.t_offset, None)
                        if time is None
                        else (offset, time + below.t_offset)
                    )
                case descriptors.ReplaceIndex(variable="t"):
                    time = below.value
                case descriptors.ReplaceIndex(value=0) | descriptors.Round(t_modulus=1):
                    pass  # x is 0 everywhere
                case descriptors.Round() if time is not None:
                    time -= time % below.t_modulus
                case descriptors.Switch() if time is not None:
                    chosen = time % len(below.sources)
                case _:
                    raise ExportError(f"'{name}' reads {leaf}, which is at no fixed distance")
            below = below.sources[chosen]
        [source] = below.node_names
        if time is not None:
            return self._row(source, time) * factor
        value = self._frames_of(source)
        if isinstance(value, Tensor):
            return value * factor
        return attrs.evolve(value.moved(offset), tensor=value.tensor * factor)

    # ---- components ----

    def _component(self, node: ComponentNode, given: _Value) -> _Value:
        """Returns the output of a component at all times, for its input at all times."""
        component = self._nnet.component(node.component)
        rules = self._rules(node, component)
        rule = rules[0]
        if len(rules) != 1 or not isinstance(rule, AtOffsets):
            raise ExportError(f"'{node.name}' of type {component.type} {_MOVING}")
        offsets = rule.offsets
        if isinstance(given, Tensor) or not offsets:
            rows = {} if isinstance(given, Frames) else dict.fromkeys(offsets, given)
            return self._called(node, rows)
        required = [offset for offset in offsets if offset not in rule.optional]
        if not required:
            raise ExportError(f"'{node.name}' of type {component.type} requires no frame")
        first = max(given.first - offset for offset in required)
        behind = max(given.behind + offset for offset in required)
        rows = {
            offset: cut(given.moved(offset), first, behind, self._num_frames) for offset in offsets
        }
        with self._graph.led_by(rows[required[0]].name):
            return Frames(self._called(node, rows), first, behind)

    def _component_row(self, node: ComponentNode, time: int) -> Tensor:
        """Returns the output of a component at a time."""
        component, given = self._nnet.component(node.component), self._nnet.input_of(node)
        if isinstance(component, StatisticsPoolingComponent):
            return self._pooled(node, component, time)
        if isinstance(component, StatisticsExtractionComponent):
            begin = time - time % component.output_period
            frames = range(begin, begin + component.output_period, component.input_period)
            return self._sums(node, component, frames)
        rules = self._rules(node, component)
        rule = rules[time % len(rules)]
        if not isinstance(rule, AtOffsets) or rule.optional:
            what = "requires no row" if rule else "has none"
            raise ExportError(f"'{node.name}' of type {component.type} {what} at t = {time}")
        rows = {offset: self._row(given.name, time + offset) for offset in rule.offsets}
        return self._called(node, rows)

    def _rules(self, node: ComponentNode, component: Component) -> ClosedForm:
        """Returns which rows a component reads.

        Raises:
            ExportError: its operators are for fixed numbers of rows.
        """
        reason = components.why_not(component)
        if not reason and components.sequences.joins_rows(component):
            reason = "normalizes by the mean of the rows: set test mode"
        component_type: Any = type(component)
        rules = component.closed_form() if has_closed_form(component_type) else None
        if not reason and rules is None:
            reason = "reads rows by other rules than their distances in time"
        if reason or rules is None:
            raise ExportError(f"'{node.name}' of type {component.type} {reason}")
        return rules

    def _called(self, node: ComponentNode, rows: Mapping[int, Tensor]) -> Tensor:
        """Returns a row of a component's output, (1, columns).

        Args:
            node: Its node.
            rows: The rows that it reads, by distance in time.
        """
        component, output = self._nnet.component(node.component), make_indexes(0, 0)
        given = make_indexes(0, sorted(rows))
        given, _ = component.reorder_indexes(given, output) if rows else (given, output)
        indexes = component.precompute_indexes(given, output, need_backprop=False)
        read = [None if time == NO_TIME else rows[time] for time in given[:, T].tolist()]
        with self._graph.named(node.component):
            return concat(self._strips(node, read, indexes), axis=-1)

    def _strips(
        self, node: ComponentNode, rows: Sequence[Tensor | None], indexes: Any
    ) -> list[Tensor]:
        """Returns a row of a component's output as columns side by side, (1, columns of each).

        Args:
            node: Its node.
            rows: The rows of its input; None for zeros.
            indexes: Its precomputed indexes.
        """
        component, matrices = self._nnet.component(node.component), Matrices(self._graph)
        region = Region.of_source(ZERO, len(rows), component.input_dim)
        for place, row in enumerate(rows):
            if row is not None:
                region = region.with_rows(np.array([place]), matrices.region_of(row))
        call = components.Call(
            component=component,
            name=node.component,
            graph=self._graph,
            matrices=matrices,
            region=region,
            rows_out=1,
            indexes=indexes,
        )
        strips = components.translate(call).merged().strips
        tensors = [matrices.tensor(Region((strip,))) for strip in strips]
        return [attrs.evolve(each, image=None) for each in tensors]

    # ---- statistics over all frames ----

    def _pooled(
        self, node: ComponentNode, component: StatisticsPoolingComponent, time: int
    ) -> Tensor:
        """Returns means, and standard deviations, over the frames around a time."""
        read = self._nnet.input_of(node).descriptor
        [part, *others] = read.parts
        [name, *more] = part.node_names or ("",)
        source = None if others or more or str(part) != name else self._nnet.node(name)
        sums = self._nnet.component(source.component) if isinstance(source, ComponentNode) else None
        period = component.input_period
        if (
            not isinstance(source, ComponentNode)
            or not isinstance(sums, StatisticsExtractionComponent)
            or sums.output_period != period
        ):
            raise ExportError(
                f"'{node.name}' of type {component.type} pools {read}, "
                f"which is no StatisticsExtractionComponent with an output period of {period}"
            )
        if time % period:
            raise ExportError(f"'{node.name}' of type {component.type} has no row at t = {time}")
        end = time + component.right_context + period
        frames = range(time - component.left_context, end, sums.input_period)
        rows = [self._sums(source, sums, frames)]
        with self._graph.named(node.component):
            return concat(self._strips(node, rows, _one_range(component)), axis=-1)

    def _sums(
        self, node: ComponentNode, component: StatisticsExtractionComponent, frames: range
    ) -> Tensor:
        """Returns the number of frames, and their sums and sums of squares, (1, columns)."""
        given = self._frames_of(self._nnet.input_of(node).name)
        if isinstance(given, Tensor):
            raise ExportError(f"'{node.name}' of type {component.type} reads no frame")
        self._check_fixed(node, frames.start)
        frames = frames[max(0, -(-(given.first - frames.start) // frames.step)) :]
        if not frames:
            raise ExportError(
                f"'{node.name}' of type {component.type} reads no frame of its window"
            )
        self._require(frames.start + given.behind + 1)
        begin, end = frames.start - given.first, frames[-1] + 1 - given.first
        rows = sliced(given.tensor, begin, end, frames.step)
        with self._graph.led_by(rows.name), self._graph.named(node.component):
            strips = self._strips(node, [rows], _one_range(component))
            axes = self._graph.integers([FRAME_AXIS])
            sums = [
                attrs.evolve(
                    each, name=self._graph.node("ReduceSum", [each.name, axes], keepdims=0)
                )
                for each in strips
            ]
        return concat(sums, axis=-1)

    def _num_frames(self) -> str:
        """Returns the number of frames of the utterance, as a list of one integer."""
        name = next(name for name, (rows, _) in self._input_sizes.items() if rows is None)
        return self._graph.node("Shape", [name], start=1, end=2)


def _sum(values: Sequence[Tensor]) -> Tensor:
    return functools.reduce(operator.add, values)


def _one_range(component: StatisticsExtractionComponent | StatisticsPoolingComponent) -> Any:
    """The indexes of one row that is read as it is."""
    return component.precompute_indexes(make_indexes(0, 0), make_indexes(0, 0), need_backprop=False)
