"""The compiler: a network and a request make a computation.

The stages, each in one module: graph (nnet3_graph), epochs, phases, steps, input locations,
derivatives, step info, forward and backward commands, assembly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from nnet3_computation import ComputationRequest, OptionError, RequestFingerprint
from nnet3_computation.computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_graph import ComputationGraph, build_computation_graph

from nnet3_compiler.assembly.assembly import Assembly
from nnet3_compiler.assembly.component_commands import precompute_indexes
from nnet3_compiler.assembly.derivatives import derivatives_needed
from nnet3_compiler.assembly.locations import input_locations
from nnet3_compiler.assembly.pieces import classify
from nnet3_compiler.assembly.step_info import make_step_info
from nnet3_compiler.errors import CompilationError
from nnet3_compiler.shortcut import ONE_SEQUENCE, Minibatch, reduce_request
from nnet3_compiler.steps.epochs import compute_epochs
from nnet3_compiler.steps.graphs import Graphs, check_graph
from nnet3_compiler.steps.network import Network
from nnet3_compiler.steps.phases import compute_phases
from nnet3_compiler.steps.steps import IrregularOrderError, Steps, StepsBuilder


@attrs.frozen(kw_only=True)
class CompilerOptions:
    """Options of the compiler.

    Attributes:
        output_debug_info: Whether the computation names the cindexes of the rows of its matrices.
        shortcut: Whether the compiler compiles one of several equal sequences, and derives the
            commands for all of them from it.

    Raises:
        OptionError: A switch is not True or False.
    """

    output_debug_info: bool = True
    shortcut: bool = True

    def __attrs_post_init__(self) -> None:
        for name in ("output_debug_info", "shortcut"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False (got {getattr(self, name)!r})")


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
    nnet: Nnet,
    requests: Sequence[ComputationRequest],
    options: CompilerOptions | None = None,
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
