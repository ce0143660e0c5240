"""ComputationGraphBuilder: from a network and a request to the graph of the computed rows."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, RequestError
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    Node,
    OutputNode,
)
from nnet3_descriptors.indexes import IndexArray
from nnet3_descriptors.similar_names import hint

from nnet3_graph.errors import UnboundedComputationError
from nnet3_graph.graph import ComputationGraph, make_graph
from nnet3_graph.nodes import NodeRules, node_rules
from nnet3_graph.rows import MAX_STEPS, Earlier, Reach, find_reach
from nnet3_graph.sets.bits import BitLayout, Bits
from nnet3_graph.sets.index_set import Grid, Patterns, Ranks, find_patterns

if TYPE_CHECKING:
    from nnet3_graph.examination import Examined

_KINDS: dict[type[Node], str] = {
    InputNode: "an input node",
    ComponentInputNode: "a component-input node",
    ComponentNode: "a component node",
    DimRangeNode: "a dim-range node",
    OutputNode: "an output node",
}


def check_request(nnet: Nnet, request: ComputationRequest) -> None:
    """Checks that the nodes which a request names can be given or asked for.

    Raises:
        RequestError: the network has no node of that name, or one of another kind.
    """
    for specification in request.inputs:
        node = _find(nnet, specification.name, "input", (InputNode, ComponentNode))
        if not isinstance(node, InputNode | ComponentNode):
            raise RequestError(
                f"input '{node.name}' is {_KINDS[type(node)]} of the network; only input nodes "
                f"and component nodes can be given"
            )
    for specification in request.outputs:
        node = _find(nnet, specification.name, "output", (OutputNode,))
        if not isinstance(node, OutputNode):
            raise RequestError(
                f"output '{node.name}' is {_KINDS[type(node)]} of the network; only output nodes "
                f"can be requested"
            )


def _find(nnet: Nnet, name: str, role: str, kinds: tuple[type[Node], ...]) -> Node:
    """Returns the node of a name; the error lists the names that there are."""
    if name in nnet.node_indexes:
        return nnet.node(name)
    first_kind = [node.name for node in nnet.nodes if isinstance(node, kinds[0])]
    others = [node.name for node in nnet.nodes if isinstance(node, kinds)]
    listed = ", ".join(f"'{known}'" for known in first_kind)
    raise RequestError(
        f"the network has no node '{name}' for the {role} of that name; "
        f"its {role} nodes are {listed}{hint(name, others)}"
    )


def check_previous(nnet: Nnet, previous: ComputationGraph) -> None:
    """Checks that the graph of the earlier segments is one of the same network.

    Raises:
        RequestError: it has other nodes.
    """
    for number, (theirs, ours) in enumerate(zip_longest(previous.nnet.nodes, nnet.nodes)):
        if theirs != ours:
            name = (ours or theirs).name
            raise RequestError(
                f"the graph of the earlier segments is of another network: it differs in node "
                f"{number}, '{name}'"
            )


def check_not_repeated(nnet: Nnet, reach: Reach) -> None:
    """Checks that a segment neither gives nor requests what an earlier one has.

    Raises:
        RequestError: it does.
    """
    for node, earlier in enumerate(reach.earlier):
        if not earlier:
            continue
        for role, rows in (("given", reach.given[node]), ("requested", reach.outputs.get(node, 0))):
            if rows & earlier:
                _, t, _ = reach.layout.indexes(rows & earlier)[0].tolist()
                raise RequestError(
                    f"rows of '{nnet.node_names[node]}' that are {role} are in an earlier segment "
                    f"already, one of them at t = {t}"
                )


class NamedRows(NamedTuple):
    """The given and the requested rows, one sequence for each pattern.

    Attributes:
        nnet: the network.
        patterns: the sequences and their patterns.
        given: (rows, 3) indexes of the supplied rows, with the pattern as n, by node.
        outputs: the same of the requested rows.
        earlier: the rows of earlier segments, or None.
    """

    nnet: Nnet
    patterns: Patterns
    given: dict[int, IndexArray]
    outputs: dict[int, IndexArray]
    earlier: Earlier | None

    @classmethod
    def of(
        cls, nnet: Nnet, request: ComputationRequest, previous: ComputationGraph | None
    ) -> NamedRows:
        """Finds the patterns of a request, and a sequence for each.

        Args:
            nnet: the network.
            request: the rows given and wanted.
            previous: the graph of the segments before, or None.
        """
        before = previous.grid.patterns if previous is not None else None
        patterns = find_patterns([io.indexes for io in (*request.inputs, *request.outputs)], before)
        given, outputs = (
            {nnet.node_index(io.name): patterns.representative_rows(io.indexes) for io in ios}
            for ios in (request.inputs, request.outputs)
        )
        return cls(
            nnet=nnet,
            patterns=patterns,
            given=given,
            outputs=outputs,
            earlier=_earlier(previous, patterns) if previous is not None else None,
        )

    def reach(
        self,
        nodes: NodeRules | None = None,
        *,
        only_possible: bool = True,
        max_steps: tuple[int, int] = MAX_STEPS,
    ) -> Reach:
        """Returns the rows that might be read for the outputs.

        Args:
            nodes: the rules to follow; None for those of the network.
            only_possible: see `find_reach`, as for the next.
            max_steps: the same.
        """
        return find_reach(
            nodes or node_rules(self.nnet),
            self.patterns.num_patterns,
            self.given,
            self.outputs,
            self.earlier,
            only_possible=only_possible,
            max_steps=max_steps,
        )


def _earlier(previous: ComputationGraph, patterns: Patterns) -> Earlier:
    """Returns the rows of the earlier segments, for the patterns of the new one."""
    old = previous.grid
    if patterns.num_patterns == old.patterns.num_patterns and np.array_equal(
        patterns.sequences, old.patterns.sequences
    ):
        return old.layout, previous.rows_so_far
    ranks = old.patterns.ranks(patterns.sequences[patterns.representatives])
    sources = np.where(ranks >= 0, old.patterns.pattern_of[ranks], -1)
    layout = attrs.evolve(old.layout, num_patterns=patterns.num_patterns)
    rows = [_with_patterns(each, old.layout, layout, sources) for each in previous.rows_so_far]
    return layout, rows


def _with_patterns(bits: Bits, old: BitLayout, new: BitLayout, sources: Ranks) -> Bits:
    """Returns a set whose pattern i is the old pattern sources[i]; empty where that is -1."""
    if not bits:
        return 0
    table = old.table(bits)[sources]
    table[sources < 0] = False
    return new.bits(table)


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
        self._named: NamedRows | None = None
        self._reach: Reach | None = None
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
        named = NamedRows.of(self._nnet, self._request, self._previous)
        reach = named.reach()
        check_not_repeated(self._nnet, reach)
        self._named, self._reach = named, reach
        self._examined = self._pruned = None

    @property
    def _found(self) -> tuple[NamedRows, Reach]:
        if self._named is None or self._reach is None:
            raise RuntimeError("the builder has found nothing yet: call compute() first")
        return self._named, self._reach

    def all_outputs_are_computable(self) -> bool:
        """Returns whether every requested row can be computed from the inputs of the request."""
        return not self._found[1].missing_outputs

    def prune(self) -> None:
        """Reduces the graph to the rows that the outputs really read, and the inputs.

        Raises:
            NotComputableError: an output cannot be computed; the error explains why.
            UnboundedComputationError: the outputs need infinitely many rows.
        """
        named, reach = self._found
        if reach.missing_outputs:
            from nnet3_graph.explain import EXPLAINED_STEPS, explain  # most requests need none

            everywhere = named.reach(only_possible=False, max_steps=EXPLAINED_STEPS)
            raise explain(self._nnet, named.patterns, everywhere)
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
            Grid(layout=reach.layout, patterns=named.patterns),
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
            from nnet3_graph.examination import examine

            named, reach = self._found
            self._examined = examine(self._nnet, named.patterns, reach, self._previous)
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
