"""The compiler: a network and a request make a computation.

The stages: graph (nnet3_graph), epochs, phases, steps, input locations, derivatives, step info,
forward and backward commands, assembly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nnet3_computation import ComputationRequest, RequestFingerprint, commands
from nnet3_computation.arrays import Bools, IntArray, where
from nnet3_computation.commands import Table, command_rows
from nnet3_computation.computation import (
    NO_DEBUG_INFO,
    DebugInfoOfRows,
    MatrixDebugInfo,
    NnetComputation,
)
from nnet3_descriptors import Nnet, structure
from nnet3_graph import ComputationGraph, build_computation_graph

from nnet3_compiler.backward import DescriptorBackward
from nnet3_compiler.errors import CompilationError
from nnet3_compiler.forward import (
    PLACES_PER_STEP,
    Emission,
    emit_components,
    emit_sums,
    precompute_indexes,
)
from nnet3_compiler.locations import input_pieces
from nnet3_compiler.options import CompilerOptions
from nnet3_compiler.shortcut import Minibatch, Reduced, not_reduced, reduce_requests
from nnet3_compiler.step_info import StepInfo, derivatives_needed, make_step_info
from nnet3_compiler.steps.building import IrregularOrderError, Steps, StepsBuilder
from nnet3_compiler.steps.network import (
    Graphs,
    Network,
    NodeKind,
    check_graph,
    compute_epochs,
    compute_phases,
)


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
        return _make_steps(network, not_reduced([self.request]), graphs)

    def create_computation(self, options: CompilerOptions | None = None) -> NnetComputation:
        """Returns the computation.

        Args:
            options: The options; `shortcut` has no effect here.

        Raises:
            NotComputableError: An output can't be computed from the inputs.
            CompilationError: The recurrence of the network has no order of computation.
        """
        options = options or CompilerOptions()
        network = Network.of(self.nnet)
        requests = [self.request]
        return _compile(network, not_reduced(requests), requests, options, self._graphs(network))

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
    network = Network.of(nnet)
    reduced = reduce_requests(requests) if options.shortcut else None
    if reduced is not None:
        try:
            return _compile(network, reduced, requests, options)
        except IrregularOrderError:
            pass  # some component orders its rows without a pattern: compile all sequences
    return _compile(network, not_reduced(requests), requests, options)


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


def _make_steps(network: Network, reduced: Reduced, graphs: Graphs) -> Steps:
    """Returns the steps of the segments."""
    phases = compute_phases(network, compute_epochs(network.nnet), graphs)
    return StepsBuilder(network, graphs, phases, reduced).build()


def _compile(
    network: Network,
    reduced: Reduced,
    made_for: Sequence[ComputationRequest],
    options: CompilerOptions,
    graphs: Graphs | None = None,
) -> NnetComputation:
    """Compiles requests, reduced to one sequence or not, in place of those that they stand for."""
    requests, minibatch, _ = reduced
    graphs = graphs or _make_graphs(network, requests)
    steps = _make_steps(network, reduced, graphs)
    pieces = input_pieces(network, graphs, steps, minibatch)
    needs_deriv = derivatives_needed(network, requests, pieces)
    precomputed, precomputed_indexes = precompute_indexes(network, requests, steps, minibatch)
    info = make_step_info(network, steps, minibatch, needs_deriv)
    lists: dict[str, list[IntArray]]
    lists = {"indexes": [], "indexes_multi": [], "indexes_ranges": []}
    forward, backward = Emission(lists), Emission(lists)
    emit_sums(pieces, info, forward)
    sums = DescriptorBackward(pieces, info, backward)
    sums.emit()
    emit_components(network, requests, steps, info, precomputed, forward, backward)
    rows = steps.count * minibatch.size
    debug_info: Sequence[MatrixDebugInfo] = ()
    if options.output_debug_info:
        debug_info = _debug_info(steps, minibatch, info)
        debug_info = (*debug_info, *sums.debug_info()) if len(sums.sizes) else debug_info
    return NnetComputation(
        matrices=np.concatenate([info.matrices, sums.sizes]),
        submatrices=info.submatrices.table,
        command_table=_command_table(network, steps, info, sums, forward, backward),
        precomputed_indexes=precomputed_indexes,
        need_model_derivative=any(request.need_model_derivative for request in requests),
        matrix_debug_info=debug_info,
        steps=np.column_stack([steps.node, rows])[rows > 0],
        network=structure.NetworkFingerprint.of(network.nnet),
        requests=tuple(map(RequestFingerprint.of, made_for)),
        indexes=lists["indexes"],
        indexes_multi=lists["indexes_multi"],
        indexes_ranges=lists["indexes_ranges"],
    )


def _command_table(
    network: Network,
    steps: Steps,
    info: StepInfo,
    sums: DescriptorBackward,
    forward: Emission,
    backward: Emission,
) -> Table:
    """Puts the commands of all steps together.

    The order is: inputs, allocation of all other matrices, forward commands, outputs, a marker;
    output derivatives, backward commands, deallocation, input derivatives. Of several segments
    each has its own inputs, forward commands, outputs and marker.
    """

    def io(command_type: type[commands.Command], submatrix: IntArray, chosen: Bools) -> Table:
        """Returns the commands that take or give the matrices of some steps."""
        step = where(chosen & (submatrix > 0))
        node = steps.node[step]
        return command_rows(command_type, len(step), matrix=submatrix[step], node=node)

    def sizing(command_type: type[commands.Command], *but_of: IntArray) -> Table:
        """Returns the commands that allocate or free all matrices but those of some submatrices."""
        chosen = np.ones(len(info.matrices), np.bool_)
        for submatrices in but_of:
            chosen[submatrices] = False
        chosen[0] = False
        matrix = where(chosen)
        return command_rows(command_type, len(matrix), matrix=matrix)

    is_output = network.kind[steps.node] == NodeKind.OUTPUT
    of_outputs, of_inputs = info.deriv[is_output], info.deriv[steps.is_given]
    marker = command_rows(commands.NoOperationMarker, 1)
    table, places = forward.ordered()
    segment_of_command = steps.segment[places // PLACES_PER_STEP]
    parts: list[Table] = []
    for segment in range(int(steps.segment.max()) + 1):
        own = steps.segment == segment
        parts.append(io(commands.AcceptInput, info.value, own & steps.is_given))
        if segment == 0:
            given = info.value[steps.is_given]
            parts.append(sizing(commands.AllocMatrixZeroed, given, of_outputs))
            parts.append(sums.sizing(commands.AllocMatrixZeroed))
        parts.append(table[segment_of_command == segment])
        parts.append(io(commands.ProvideOutput, info.value, own & is_output))
        parts.append(marker)
    parts.append(io(commands.AcceptInput, info.deriv, is_output)[::-1])
    parts.append(backward.ordered()[0])
    parts.append(sizing(commands.DeallocMatrix, info.value[is_output], of_inputs))
    parts.append(sums.sizing(commands.DeallocMatrix))
    parts.append(io(commands.ProvideOutput, info.deriv, steps.is_given))
    return np.concatenate(parts)


def _debug_info(steps: Steps, minibatch: Minibatch, info: StepInfo) -> DebugInfoOfRows:
    """Returns the cindexes of the rows of the matrix of each step."""
    step = info.matrix_step[1:]
    return DebugInfoOfRows(
        cindexes=steps.cindexes,
        begin=steps.begin[step],
        rows=steps.count[step],
        block=steps.block[step],
        is_deriv=info.matrix_is_deriv[1:],
        sequences=minibatch.sequences if minibatch.size > 1 else NO_DEBUG_INFO.sequences,
    )
