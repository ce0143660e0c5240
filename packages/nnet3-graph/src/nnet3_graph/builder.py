"""ComputationGraphBuilder: from a network and a request to the graph of the computed rows."""

from __future__ import annotations

from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet

from nnet3_graph.errors import UnboundedComputationError
from nnet3_graph.examination import Examined, examine
from nnet3_graph.explain import EXPLAINED_STEPS, explain
from nnet3_graph.graph import ComputationGraph, make_graph
from nnet3_graph.named_rows import NamedRows
from nnet3_graph.reach import Reach
from nnet3_graph.request_check import check_not_repeated, check_previous, check_request
from nnet3_graph.sets.index_set import Grid


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
