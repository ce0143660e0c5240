"""The compiler: a network and a request make a computation.

The stages: graph (nnet3_graph), epochs, phases, steps, input locations, derivatives, step info,
forward and backward commands, assembly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, RequestFingerprint, commands
from nnet3_computation.arrays import IntArray, where
from nnet3_computation.commands import Emission, Table, command_rows
from nnet3_computation.computation import (
    NO_DEBUG_INFO,
    DebugInfoOfRows,
    MatrixDebugInfo,
    NnetComputation,
)
from nnet3_descriptors import Nnet, structure
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_graph import ComputationGraph, build_computation_graph
from numpy.typing import NDArray

from nnet3_compiler.backward import DescriptorBackward, GatheredMatrices
from nnet3_compiler.errors import CompilationError
from nnet3_compiler.forward import (
    PLACES_PER_STEP,
    ComponentCommands,
    DescriptorForward,
    precompute_indexes,
)
from nnet3_compiler.locations import Pieces, classify, input_locations
from nnet3_compiler.options import CompilerOptions
from nnet3_compiler.shortcut import ONE_SEQUENCE, Minibatch, reduce_request
from nnet3_compiler.step_info import StepInfo, derivatives_needed, make_step_info
from nnet3_compiler.steps.building import IrregularOrderError, StepsBuilder
from nnet3_compiler.steps.network import (
    Graphs,
    Network,
    NodeKind,
    check_graph,
    compute_epochs,
    compute_phases,
)
from nnet3_compiler.steps.steps import Steps


@attrs.frozen(kw_only=True, eq=False)
class Assembly:
    """Puts the commands of all steps together.

    The order is: inputs, allocation of all other matrices, forward commands, outputs, a marker;
    output derivatives, backward commands, deallocation, input derivatives. Of several segments
    each has its own inputs, forward commands, outputs and marker.

    Attributes:
        network: The network.
        requests: The request of each segment.
        steps: The steps.
        minibatch: The sequences that the rows stand for.
        pieces: The classified input locations.
        info: The submatrices of values and derivatives.
        precomputed_of_step: (S,) int32.
        precomputed_indexes: The indexes that components precomputed.
    """

    network: Network
    requests: Sequence[ComputationRequest]
    steps: Steps
    minibatch: Minibatch
    pieces: Pieces
    info: StepInfo
    precomputed_of_step: IntArray
    precomputed_indexes: tuple[PrecomputedIndexes | None, ...]

    def computation(
        self, *, debug_info: bool, made_for: tuple[RequestFingerprint, ...]
    ) -> NnetComputation:
        """Returns the computation, with or without debug info, and its fingerprints."""
        lists = commands.IndexLists()
        components = ComponentCommands.of(
            self.network, self.requests, self.steps, self.info, self.precomputed_of_step
        )
        updates_model = any(request.need_model_derivative for request in self.requests)
        forward, backward = Emission(), Emission()
        DescriptorForward(pieces=self.pieces, info=self.info, lists=lists).emit(forward)
        components.emit_forward(forward)
        gathered = GatheredMatrices(first=len(self.info.matrices))
        DescriptorBackward(pieces=self.pieces, info=self.info, lists=lists, gathered=gathered).emit(
            backward
        )
        components.emit_backward(backward, updates_model=updates_model)
        rows = self.steps.count * self.minibatch.size
        step_rows = np.column_stack([self.steps.node, rows])[rows > 0]
        return NnetComputation(
            matrices=np.concatenate([self.info.matrices, gathered.table]),
            submatrices=self.info.submatrices.table,
            command_table=self._command_table(forward, backward, gathered),
            indexes=lists.indexes.items,
            indexes_multi=lists.multi.items,
            indexes_ranges=lists.ranges.items,
            precomputed_indexes=self.precomputed_indexes,
            need_model_derivative=updates_model,
            matrix_debug_info=self._debug_info(gathered) if debug_info else (),
            steps=step_rows,
            network=structure.NetworkFingerprint.of(self.network.nnet),
            requests=made_for,
        )

    def _command_table(
        self, forward: Emission, backward: Emission, gathered: GatheredMatrices
    ) -> Table:
        steps, info = self.steps, self.info
        is_output = self.network.kind[steps.node] == NodeKind.OUTPUT
        marker = command_rows(commands.NoOperationMarker, 1)
        table, places = forward.ordered()
        segment_of_command = steps.segment[places // PLACES_PER_STEP]
        parts: list[Table] = []
        for segment in range(len(self.requests)):
            own = steps.segment == segment
            parts.append(self._io(commands.AcceptInput, info.value, own & steps.is_given))
            if segment == 0:
                parts.append(self._allocations(is_output))
                parts.append(gathered.commands(commands.AllocMatrixZeroed))
            parts.append(table[segment_of_command == segment])
            parts.append(self._io(commands.ProvideOutput, info.value, own & is_output))
            parts.append(marker)
        parts.append(self._io(commands.AcceptInput, info.deriv, is_output)[::-1])
        parts.append(backward.ordered()[0])
        kept = self._matrices(info.value[is_output], info.deriv[steps.is_given])
        parts.append(self._whole(commands.DeallocMatrix, ~kept))
        parts.append(gathered.commands(commands.DeallocMatrix))
        parts.append(self._io(commands.ProvideOutput, info.deriv, steps.is_given))
        return np.concatenate(parts)

    def _io(
        self, command_type: type[commands.Command], submatrix: IntArray, chosen: NDArray[np.bool_]
    ) -> Table:
        """Returns the commands that take or give the matrices of some steps."""
        step = where(chosen & (submatrix > 0))
        return command_rows(
            command_type, len(step), matrix=submatrix[step], node=self.steps.node[step]
        )

    def _allocations(self, is_output: NDArray[np.bool_]) -> Table:
        """Returns the commands that allocate all matrices except the ones that the user gives."""
        given = self._matrices(self.info.value[self.steps.is_given], self.info.deriv[is_output])
        return self._whole(commands.AllocMatrixZeroed, ~given)

    def _matrices(self, *submatrices: IntArray) -> NDArray[np.bool_]:
        """Returns which matrices these (whole) submatrices are: (M,) bool, True for the empty."""
        chosen = np.zeros(len(self.info.matrices), np.bool_)
        for numbers in submatrices:
            chosen[numbers] = True
        chosen[0] = True
        return chosen

    def _whole(self, command_type: type[commands.Command], chosen: NDArray[np.bool_]) -> Table:
        matrix = where(chosen)
        return command_rows(command_type, len(matrix), matrix=matrix)

    def _debug_info(self, gathered: GatheredMatrices) -> Sequence[MatrixDebugInfo]:
        """Returns the cindexes of the rows of each matrix."""
        steps, minibatch = self.steps, self.minibatch
        sequences = minibatch.sequences if minibatch.size > 1 else NO_DEBUG_INFO.sequences
        step = self.info.matrix_step[1:]
        infos = DebugInfoOfRows(
            cindexes=steps.cindexes,
            begin=steps.begin[step],
            rows=steps.count[step],
            block=steps.block[step],
            is_deriv=self.info.matrix_is_deriv[1:],
            sequences=sequences,
        )
        further = gathered.debug_info(self.pieces)
        return (*infos, *further) if further else infos


class Compiler:
    """Compiles one request, all of its cindexes one by one.

    Attributes:
        nnet: The network.
        request: The request.
        graph: The computation graph of the request, if you have built it already; None to build it.
    """

    def __init__(
        self, nnet: Nnet, request: ComputationRequest, graph: ComputationGraph | None = None
    ) -> None:
        """Prepares to compile a request.

        Raises:
            CompilationError: The graph is of another network or request.
        """
        self.nnet = nnet
        self.request = request
        self.graph = graph
        if graph is not None:
            check_graph(nnet, request, graph)

    def __repr__(self) -> str:
        """The network and the request."""
        return f"<Compiler of {self.request!r} for {self.nnet!r}>"

    def make_steps(self) -> Steps:
        """Returns the steps of the computation.

        Raises:
            NotComputableError: An output can't be computed from the inputs.
            CompilationError: The recurrence of the network has no order of computation.
        """
        network = Network.of(self.nnet)
        graphs = self._graphs(network)
        return _make_steps(network, [self.request], ONE_SEQUENCE, [{}], graphs)

    def create_computation(self, options: CompilerOptions | None = None) -> NnetComputation:
        """Returns the computation.

        Args:
            options: The options; `shortcut` has no effect here.

        Raises:
            NotComputableError: An output can't be computed from the inputs.
            CompilationError: The recurrence of the network has no order of computation.
        """
        options = options or CompilerOptions()
        graphs = self._graphs(Network.of(self.nnet))
        return _compile(self.nnet, [self.request], ONE_SEQUENCE, [{}], options, graphs=graphs)

    def _graphs(self, network: Network) -> Graphs:
        if self.graph is None:
            return _make_graphs(network, [self.request])
        return Graphs(segments=[self.graph])


def compile_computation(
    nnet: Nnet, request: ComputationRequest, options: CompilerOptions | None = None
) -> NnetComputation:
    """Compiles a request; a minibatch of equal sequences as one of them (see `shortcut`).

    Args:
        nnet: The network.
        request: The request.
        options: See `CompilerOptions`.

    Raises:
        RequestError: The request does not fit the network.
        NotComputableError: An output can't be computed from the inputs.
        UnboundedComputationError: The outputs need infinitely many rows.
        CompilationError: The recurrence of the network has no order of computation.
    """
    return compile_segments(nnet, [request], options)


def compile_segments(
    nnet: Nnet, requests: Sequence[ComputationRequest], options: CompilerOptions | None = None
) -> NnetComputation:
    """Compiles several requests to one computation, each a segment that ends with a marker.

    Later segments use rows that earlier ones have computed, so they need less input.

    Args:
        nnet: The network.
        requests: The request of each segment. Several segments can't have derivatives.
        options: See `CompilerOptions`.

    Raises:
        NotComputableError: An output can't be computed from the inputs so far.
        CompilationError: There are no requests; or several have derivatives, or some store
            statistics and others do not.
    """
    options = options or CompilerOptions()
    if not isinstance(nnet, Nnet):
        raise CompilationError(f"expected a network (Nnet), found {type(nnet).__name__}")
    _check_segments(requests)
    if options.shortcut:
        reductions = [reduced for each in requests if (reduced := reduce_request(each))]
        minibatches = {reduced.minibatch.sequences.tobytes() for reduced in reductions}
        if len(reductions) == len(requests) and len(minibatches) == 1:
            try:
                return _compile(
                    nnet,
                    [reduced.request for reduced in reductions],
                    reductions[0].minibatch,
                    [reduced.blocks for reduced in reductions],
                    options,
                    made_for=requests,
                )
            except IrregularOrderError:
                pass  # some component orders its rows without a pattern: compile all sequences
    return _compile(nnet, requests, ONE_SEQUENCE, [{}] * len(requests), options)


def _check_segments(requests: Sequence[ComputationRequest]) -> None:
    if not requests:
        raise CompilationError("a computation needs at least one request (got none)")
    for each in requests:
        if not isinstance(each, ComputationRequest):
            raise CompilationError(f"expected a ComputationRequest, found {type(each).__name__}")
    if len(requests) == 1:
        return
    for number, request in enumerate(requests):
        if request.needs_derivatives or any(io.has_deriv for io in request.outputs):
            raise CompilationError(
                f"a computation in several segments can't have derivatives (request {number} has)"
            )
        if request.store_component_stats != requests[0].store_component_stats:
            raise CompilationError(
                "the segments of a computation must all store component statistics, or none"
            )


def _make_graphs(network: Network, requests: Sequence[ComputationRequest]) -> Graphs:
    """Returns the graphs of the segments."""
    segments: list[ComputationGraph] = []
    for request in requests:
        previous = segments[-1] if segments else None
        segments.append(build_computation_graph(network.nnet, request, previous))
    return Graphs(segments=segments)


def _make_steps(
    network: Network,
    requests: Sequence[ComputationRequest],
    minibatch: Minibatch,
    blocks: Sequence[Mapping[str, int]],
    graphs: Graphs,
) -> Steps:
    """Returns the steps of the segments."""
    builder = StepsBuilder(
        network=network,
        graphs=graphs,
        phases=compute_phases(network, compute_epochs(network.nnet), graphs),
        requests=requests,
        minibatch=minibatch,
        blocks=blocks,
    )
    return builder.build()


def _compile(
    nnet: Nnet,
    requests: Sequence[ComputationRequest],
    minibatch: Minibatch,
    blocks: Sequence[Mapping[str, int]],
    options: CompilerOptions,
    *,
    made_for: Sequence[ComputationRequest] | None = None,
    graphs: Graphs | None = None,
) -> NnetComputation:
    """Compiles requests in place of the requests `made_for`, whose sequences they stand for."""
    network = Network.of(nnet)
    graphs = graphs or _make_graphs(network, requests)
    steps = _make_steps(network, requests, minibatch, blocks, graphs)
    locations = input_locations(network, graphs, steps)
    needs_deriv = derivatives_needed(network, requests, steps, locations)
    precomputed_of_step, precomputed = precompute_indexes(network, requests, steps, minibatch)
    assembly = Assembly(
        network=network,
        requests=requests,
        steps=steps,
        minibatch=minibatch,
        pieces=classify(steps, minibatch, locations),
        info=make_step_info(network, steps, minibatch, needs_deriv),
        precomputed_of_step=precomputed_of_step,
        precomputed_indexes=precomputed,
    )
    return assembly.computation(
        debug_info=options.output_debug_info,
        made_for=tuple(map(RequestFingerprint.of, made_for or requests)),
    )
