"""Looped computations without a loop: the state is an input and an output of every chunk.

`compile_looped` makes one computation that keeps what later chunks read. Here each chunk is an
ordinary request. Its inputs include the rows of component nodes that earlier chunks have computed
and this one reads. Its outputs include the rows that later chunks read. The caller holds the state
between chunks, and can store it, send it elsewhere, or run it beside the states of other sequences.

The graphs of the chunks, each with the earlier chunks as earlier segments, say which chunk computes
which rows. `compile_looped` starts from the same graphs, so the outputs are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    OutputNode,
    check_limit,
    parse_descriptor,
)
from nnet3_descriptors.components import ComponentProperties, NoOpComponent
from nnet3_descriptors.descriptors import Descriptor, Failover, IfDefined, SumDescriptor
from nnet3_descriptors.indexes import IndexArray, N, T
from nnet3_descriptors.structure import reached
from nnet3_descriptors.values import is_integer
from nnet3_graph import ComputationGraph, build_computation_graph
from nnet3_graph.nodes import node_rules
from numpy.typing import NDArray

from nnet3_compiler.errors import CompilationError
from nnet3_compiler.looped import compilation
from nnet3_compiler.looped.requests import check_no_fixed_frame, extended_requests, shift_of

STATE_SUFFIX: Final = ".state"
"""The suffix that makes the name of an output from the component node whose rows it hands on."""


@attrs.frozen(kw_only=True)
class Chunk:
    """The request of a chunk, with times counted from its own first frame.

    Attributes:
        request: The request for one sequence. Its inputs are the new rows of input nodes that this
            chunk or a later one reads, and then the state, as rows of component nodes. Its outputs
            are those of the request, and then the state for the next chunk.
        state_outputs: For each component node in the state of the next chunk, the output that has
            its rows, in the same order.
    """

    request: ComputationRequest
    state_outputs: tuple[tuple[str, str], ...]

    def for_sequences(self, count: int) -> ComputationRequest:
        """Returns the request for sequences n = 0, 1, ..., the rows of each one together.

        Args:
            count: The number of sequences.

        Raises:
            CompilationError: The number is not a positive integer, or asks for more rows than
                `Limits.rows`.
        """
        if not is_integer(count) or count < 1:
            raise CompilationError(f"count must be a positive integer (got {count!r})")
        count = int(count)
        for io in (*self.request.inputs, *self.request.outputs):
            rows = len(io.indexes) * count
            check_limit("rows", rows, f"the rows of '{io.name}'", CompilationError)
        return attrs.evolve(
            self.request,
            inputs=[_repeated(io, count) for io in self.request.inputs],
            outputs=[_repeated(io, count) for io in self.request.outputs],
        )


@attrs.frozen(kw_only=True)
class ChunksWithState:
    """A looped computation as chunks that take their state as inputs.

    Attributes:
        nnet: The network, with an output for each component node that is part of a state.
        chunks: The first chunks; all further ones are like the last of them.
        shift: The number of frames from one chunk to the next.
    """

    nnet: Nnet
    chunks: tuple[Chunk, ...]
    shift: int

    def chunk(self, number: int) -> Chunk:
        """Returns the chunk of that number, from 0.

        Raises:
            CompilationError: The number is not an integer from 0 on.
        """
        if not is_integer(number) or number < 0:
            raise CompilationError(f"a chunk has a number from 0 on (got {number!r})")
        return self.chunks[min(number, len(self.chunks) - 1)]


def chunks_with_state(nnet: Nnet, requests: Sequence[ComputationRequest]) -> ChunksWithState:
    """Returns the chunks of a looped computation, each with its state as inputs and outputs.

    Args:
        nnet: The network.
        requests: The requests for the first three chunks of one sequence; the third is the second,
            shifted in time. Without derivatives. See `looped_requests`.

    Raises:
        NotComputableError: An output can't be computed from the inputs so far.
        CompilationError: The requests have derivatives, several sequences, or are not shifted
            against each other; or by a number of frames that is no multiple of the modulus of the
            network; or a node reads a fixed t; or no repetition was found, before a chunk has a t
            beyond 32 bits.
    """
    _check(requests)
    shift = shift_of(requests)
    _check_fixed_times(nnet, requests[0])
    nnet = _with_kept_inputs(nnet)
    for num_segments in compilation.numbers_of_segments(compilation.steadiness_of(nnet, requests)):
        segments = _Segments.of(nnet, extended_requests(requests, num_segments), shift)
        chunks = segments.chunks_until_they_repeat()
        if chunks is not None:
            return ChunksWithState(nnet=segments.nnet, chunks=chunks, shift=shift)
    raise CompilationError(
        f"in {compilation.MAX_NUM_SEGMENTS} chunks of {shift} frames no state was found "
        "that repeats"
    )


def _check(requests: Sequence[ComputationRequest]) -> None:
    for number, request in enumerate(requests):
        ios = (*request.inputs, *request.outputs)
        if any(io.has_deriv for io in ios) or request.need_model_derivative:
            raise CompilationError(f"chunks can't have derivatives (request {number} has)")
        if any(io.indexes[:, N].any() for io in ios):
            raise CompilationError(
                f"chunks with a state are those of one sequence, n = 0 (request {number} has more)"
            )


def _check_fixed_times(nnet: Nnet, request: ComputationRequest) -> None:
    """Checks that no node reads a fixed t, which does not mean the same row in each chunk."""
    check_no_fixed_frame(nnet)
    rules = node_rules(nnet).rules
    outputs = [nnet.node_index(io.name) for io in request.outputs]
    for node in reached(outputs, lambda node: rules[node].sources):
        if rules[node].has_fixed_t:
            raise CompilationError(
                f"'{nnet.node_names[node]}' reads the same t for all frames, which would be "
                "another frame in each chunk: with_ivector_period replaces ReplaceIndex(.., t, 0)"
            )


# ---- sums of inputs that later chunks read are computed once ----


def _with_kept_inputs(nnet: Nnet) -> Nnet:
    """Returns the network with a NoOp before components that splice sums with optional terms.

    Later chunks read the input of such a component again. If they summed it up anew, it would have
    terms that were missing when an earlier chunk did. As the output of a NoOp it is part of the
    state.
    """
    nodes = list(nnet.nodes)
    added: list[ComponentInputNode | ComponentNode] = []
    names, components = list(nnet.component_names), list(nnet.components)
    for position, node in enumerate(nnet.nodes):
        if not isinstance(node, ComponentInputNode) or not _has_optional_terms(node.descriptor):
            continue
        reader = nnet.nodes[position + 1]
        assert isinstance(reader, ComponentNode), "its component-input node is in front of it"
        if nnet.component_of(reader).properties & ComponentProperties.SIMPLE:
            continue
        name = _unused(f"{reader.name}.kept", {*nnet.node_names})
        component = _unused(name, {*names})
        names.append(component)
        components.append(NoOpComponent(dim=node.descriptor.dim(nnet.node_dim)))
        added += [
            attrs.evolve(node, name=f"{name}{node.name.removeprefix(reader.name)}"),
            ComponentNode(name=name, component=component),
        ]
        nodes[position] = attrs.evolve(node, descriptor=parse_descriptor(name))
    if not added:
        return nnet
    return attrs.evolve(
        nnet, component_names=tuple(names), components=tuple(components), nodes=(*nodes, *added)
    )


def _has_optional_terms(descriptor: Descriptor) -> bool:
    def optional(part: SumDescriptor) -> bool:
        return isinstance(part, Failover | IfDefined) or any(map(optional, part.operands))

    return any(map(optional, descriptor.parts))


def _unused(name: str, names: set[str]) -> str:
    while name in names:
        name += "_"
    return name


# ---- the state ----


@attrs.frozen(kw_only=True, eq=False, slots=False)
class _Segments:
    """Chunks as segments of one computation, all cindexes numbered from 0.

    Attributes:
        original: The network.
        requests: Of the chunks, times counted from the start.
        shift: The number of frames from one chunk to the next.
        cindexes: (cindexes, 4), columns node, n, t, x.
        segments: (cindexes,), the segment that has each of them.
        last_readers: (cindexes,), the last segment that reads each of them; its own if none does.
    """

    original: Nnet
    requests: tuple[ComputationRequest, ...]
    shift: int
    cindexes: IndexArray
    segments: NDArray[np.int64]
    last_readers: NDArray[np.int64]

    @classmethod
    def of(cls, nnet: Nnet, requests: tuple[ComputationRequest, ...], shift: int) -> _Segments:
        """Builds the graphs of the requests."""
        graphs: list[ComputationGraph] = []
        for request in requests:
            graphs.append(build_computation_graph(nnet, request, graphs[-1] if graphs else None))
        cindexes = np.concatenate([graph.cindexes for graph in graphs])
        counts = [graph.num_cindexes for graph in graphs]
        segments = np.repeat(np.arange(len(graphs)), counts)
        return cls(
            original=nnet,
            requests=requests,
            shift=shift,
            cindexes=cindexes,
            segments=segments,
            last_readers=_last_readers(nnet, graphs, cindexes, segments),
        )

    @cached_property
    def nnet(self) -> Nnet:
        """The network with an output for each component node whose rows are part of the state."""
        return attrs.evolve(
            self.original,
            nodes=(
                *self.original.nodes,
                *(
                    OutputNode(name=output, descriptor=parse_descriptor(node))
                    for node, output in self._state_outputs.items()
                ),
            ),
        )

    @cached_property
    def _is_handed_on(self) -> NDArray[np.bool_]:
        """(cindexes,), whether the cindex is part of the state for later segments."""
        holds = [isinstance(node, ComponentNode | InputNode) for node in self.original.nodes]
        is_held: NDArray[np.bool_] = np.array(holds)[self.cindexes[:, 0]]
        return is_held & (self.last_readers > self.segments)

    @cached_property
    def _state_outputs(self) -> dict[str, str]:
        """The output for each component node whose rows are part of the state."""
        names = {*self.original.node_names}
        return {
            node.name: _unused(f"{node.name}{STATE_SUFFIX}", names)
            for number in np.unique(self.cindexes[self._is_handed_on, 0]).tolist()
            if isinstance(node := self.original.nodes[number], ComponentNode)
        }

    def _handed_on(self, segment: int) -> dict[str, IndexArray]:
        """The rows (n, t, x) that segments from this one on read of earlier ones, by node.

        Times are counted from the first frame of the segment.
        """
        wanted = self._is_handed_on & (self.segments < segment) & (self.last_readers >= segment)
        cindexes = self.cindexes[wanted]
        rows = {}
        for number in np.unique(cindexes[:, 0]).tolist():
            indexes = cindexes[cindexes[:, 0] == number, 1:].copy()
            indexes[:, T] -= segment * self.shift
            rows[self.original.node_names[number]] = indexes[np.lexsort(indexes.T[::-1])]
        return rows

    def _chunk(self, number: int) -> Chunk:
        """The chunk of a segment."""
        given, handed_on = self._handed_on(number), self._handed_on(number + 1)
        request = self.requests[number]
        inputs = [self._input(io.name, number, given.pop(io.name, None)) for io in request.inputs]
        inputs += [IoSpecification(name=name, indexes=rows) for name, rows in given.items()]
        outputs = [_moved(io, -number * self.shift) for io in request.outputs]
        states = {name: rows for name, rows in handed_on.items() if name in self._state_outputs}
        for name, indexes in states.items():
            io = IoSpecification(name=self._state_outputs[name], indexes=indexes)
            outputs.append(_moved(io, self.shift))
        return Chunk(
            request=attrs.evolve(request, inputs=inputs, outputs=outputs),
            state_outputs=tuple((name, self._state_outputs[name]) for name in states),
        )

    def _input(self, name: str, segment: int, read: IndexArray | None) -> IoSpecification:
        """The rows of an input node that a chunk is given: all, from the first that it reads."""
        come = np.concatenate(
            [
                io.indexes
                for request in self.requests[: segment + 1]
                for io in request.inputs
                if io.name == name
            ]
        )
        if read is None:
            last = next(io for io in self.requests[segment].inputs if io.name == name)
            return _moved(last, -segment * self.shift)
        first = int(read[:, T].min()) + segment * self.shift
        rows = come[come[:, T] >= first]
        io = IoSpecification(name=name, indexes=rows[np.argsort(rows[:, T], kind="stable")])
        return _moved(io, -segment * self.shift)

    def chunks_until_they_repeat(self) -> tuple[Chunk, ...] | None:
        """Returns the chunks up to the first one that repeats; None if none does.

        The states after the last chunks are not known, because no later chunk here reads them. So
        the last chunks do not count.
        """
        reach = int((self.last_readers - self.segments).max())
        chunks = [self._chunk(number) for number in range(len(self.requests) - 1 - reach)]
        first = len(chunks)
        while first > 0 and chunks[first - 1] == chunks[-1]:
            first -= 1
        return tuple(chunks[: first + 1]) if len(chunks) - first > 1 else None


def _last_readers(
    nnet: Nnet,
    graphs: Sequence[ComputationGraph],
    cindexes: IndexArray,
    segments: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Returns the last segment that reads each cindex, (cindexes,).

    Each segment computes the rows of component-input and dim-range nodes again for itself. So the
    rows that they are made of count as read.
    """
    counts = np.concatenate([np.diff(graph.dependency_splits) for graph in graphs])
    readers = np.repeat(np.arange(len(cindexes)), counts)
    read = np.concatenate([graph.dependencies for graph in graphs])
    is_made_again = np.array(
        [isinstance(node, ComponentInputNode | DimRangeNode) for node in nnet.nodes]
    )[cindexes[:, 0]]
    last = segments.copy()
    np.maximum.at(last, read, segments[readers])
    passes_on = is_made_again[readers]
    readers, read = readers[passes_on], read[passes_on]
    while True:
        before = last.copy()
        np.maximum.at(last, read, last[readers])
        if np.array_equal(before, last):
            return last


def _moved(io: IoSpecification, frames: int) -> IoSpecification:
    indexes = io.indexes.copy()
    indexes[:, T] += frames
    return attrs.evolve(io, indexes=indexes)


def _repeated(io: IoSpecification, count: int) -> IoSpecification:
    indexes = np.tile(io.indexes, (count, 1))
    indexes[:, N] = np.repeat(np.arange(count), len(io.indexes))
    return attrs.evolve(io, indexes=indexes)
