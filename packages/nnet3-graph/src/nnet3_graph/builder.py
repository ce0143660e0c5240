"""ComputationGraphBuilder: from a network and a request to the graph of the computed rows."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import IndexArray

from nnet3_graph.errors import UnboundedComputationError
from nnet3_graph.examination import Examined, examine
from nnet3_graph.explain import EXPLAINED_STEPS, explain
from nnet3_graph.graph import ComputationGraph, make_graph
from nnet3_graph.nodes.rules import node_rules
from nnet3_graph.reach import Earlier, Reach, find_reach
from nnet3_graph.request import ComputationRequest
from nnet3_graph.request_check import check_not_repeated, check_previous, check_request
from nnet3_graph.sets.bit_layout import BitLayout, Bits
from nnet3_graph.sets.index_set import Grid
from nnet3_graph.sets.patterns import Patterns, Ranks, find_patterns


@attrs.frozen(kw_only=True, eq=False)
class Computed:
    """The result of `ComputationGraphBuilder.compute`.

    Attributes:
        patterns: the sequences and their patterns.
        given: (rows, 3) indexes of the supplied rows, with the pattern as n, by node.
        outputs: the same of the requested rows.
        earlier: the rows of earlier segments, or None.
        reach: the rows that are part of the search.
    """

    patterns: Patterns
    given: dict[int, IndexArray]
    outputs: dict[int, IndexArray]
    earlier: Earlier | None
    reach: Reach


class ComputationGraphBuilder:
    """Builds the graph of a request; `build_computation_graph` does it in one call.

    Call `compute`, look at `all_outputs_are_computable`, then `prune`. `examined` shows each cindex
    that the builder looked at, and whether it can be computed.
    """

    def __init__(
        self, nnet: Nnet, request: ComputationRequest, previous: ComputationGraph | None = None
    ) -> None:
        """Checks that the request fits the network.

        Args:
            nnet: the network.
            request: the rows given and wanted.
            previous: the pruned graph of the segments before this one, for a looped computation:
                its rows can be read, and are not computed again.

        Raises:
            RequestError: a node of the request is unknown, or of a kind that cannot be given or
                requested; or `previous` is the graph of another network.
        """
        check_request(nnet, request)
        if previous is not None:
            check_previous(nnet, previous)
        self._nnet = nnet
        self._request = request
        self._previous = previous
        self._computed: Computed | None = None
        self._examined: Examined | None = None
        self._pruned: ComputationGraph | None = None

    def __repr__(self) -> str:
        """The network and the request."""
        return f"<ComputationGraphBuilder of {self._request!r} for {self._nnet!r}>"

    def compute(self) -> None:
        """Finds which rows might be needed for the outputs, and which of them can be computed.

        Raises:
            RequestError: the request spans too wide a box of indexes, or repeats rows of an earlier
                segment.
        """
        nnet, request, previous = self._nnet, self._request, self._previous
        before = previous.grid.patterns if previous is not None else None
        patterns = find_patterns([io.indexes for io in (*request.inputs, *request.outputs)], before)
        given, outputs = (
            {nnet.node_index(io.name): patterns.representative_rows(io.indexes) for io in ios}
            for ios in (request.inputs, request.outputs)
        )
        earlier = _earlier(previous, patterns) if previous is not None else None
        reach = find_reach(node_rules(nnet), patterns.num_patterns, given, outputs, earlier)
        check_not_repeated(nnet, reach)
        self._computed = Computed(
            patterns=patterns, given=given, outputs=outputs, earlier=earlier, reach=reach
        )
        self._examined = self._pruned = None

    @property
    def _result(self) -> Computed:
        if self._computed is None:
            raise RuntimeError("the builder has found nothing yet: call compute() first")
        return self._computed

    def all_outputs_are_computable(self) -> bool:
        """Returns whether every requested row can be computed from the inputs of the request."""
        return not self._result.reach.missing_outputs

    def prune(self) -> None:
        """Reduces the graph to the rows that the outputs really read, and the inputs.

        Raises:
            NotComputableError: an output cannot be computed; the error explains why.
            UnboundedComputationError: the outputs need infinitely many rows.
        """
        result = self._result
        reach = result.reach
        if reach.missing_outputs:
            everywhere = find_reach(
                node_rules(self._nnet),
                result.patterns.num_patterns,
                result.given,
                result.outputs,
                result.earlier,
                only_possible=False,
                max_steps=EXPLAINED_STEPS,
            )
            raise explain(self._nnet, result.patterns, everywhere)
        used = reach.used()
        endless = [
            self._nnet.nodes[node].name
            for node, (rows, inner) in enumerate(zip(used, reach.inner, strict=True))
            if (outside := rows & ~inner) and outside & ~reach.given[node] & ~reach.earlier[node]
        ]
        if endless:
            raise UnboundedComputationError(endless)
        self._pruned = make_graph(
            self._nnet,
            Grid(layout=reach.layout, patterns=result.patterns),
            rows=[
                (rows & ~earlier) | given
                for rows, earlier, given in zip(used, reach.earlier, reach.given, strict=True)
            ],
            given=reach.given,
            earlier=reach.earlier,
            previous=self._previous,
        )

    @property
    def examined(self) -> Examined:
        """`ComputableInfo` and usable count of each cindex that the builder looked at."""
        if self._examined is None:
            result = self._result
            self._examined = examine(self._nnet, result.patterns, result.reach, self._previous)
        return self._examined

    @property
    def graph(self) -> ComputationGraph:
        """The pruned graph; before `prune`, the graph of all rows that were examined."""
        return self._pruned if self._pruned is not None else self.examined.graph


def build_computation_graph(
    nnet: Nnet, request: ComputationRequest, previous: ComputationGraph | None = None
) -> ComputationGraph:
    """Returns the graph of the rows that a request needs.

    Args:
        nnet: the network.
        request: the rows given and wanted.
        previous: the graph of the segments before this one, for a looped computation.

    Raises:
        RequestError: the request does not fit the network.
        NotComputableError: an output cannot be computed from the given rows; the error names the
            missing rows.
        UnboundedComputationError: the outputs need infinitely many rows.
    """
    builder = ComputationGraphBuilder(nnet, request, previous)
    builder.compute()
    builder.prune()
    return builder.graph


def _earlier(previous: ComputationGraph, patterns: Patterns) -> Earlier:
    """Returns the rows of the earlier segments, for the patterns of the new one."""
    old = previous.grid
    if patterns.num_patterns == old.patterns.num_patterns and np.array_equal(
        patterns.sequences, old.patterns.sequences
    ):
        return Earlier(layout=old.layout, rows=previous.rows_so_far)
    ranks = old.patterns.ranks(patterns.sequences[patterns.representatives])
    sources = np.where(ranks >= 0, old.patterns.pattern_of[ranks], -1)
    layout = attrs.evolve(old.layout, num_patterns=patterns.num_patterns)
    return Earlier(
        layout=layout,
        rows=[_with_patterns(rows, old.layout, layout, sources) for rows in previous.rows_so_far],
    )


def _with_patterns(bits: Bits, old: BitLayout, new: BitLayout, sources: Ranks) -> Bits:
    """Returns a set whose pattern i is the old pattern sources[i]; empty where that is -1."""
    if not bits:
        return 0
    table = old.table(bits)[sources]
    table[sources < 0] = False
    return new.bits(table)
