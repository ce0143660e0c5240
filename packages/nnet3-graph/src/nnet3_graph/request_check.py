"""Checks that a request fits the network that it is made for."""

from __future__ import annotations

from itertools import zip_longest

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
from nnet3_descriptors.similar_names import hint

from nnet3_graph.graph import ComputationGraph
from nnet3_graph.reach import Reach

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
                raise repeated(nnet.node_names[node], role, t)


def repeated(name: str, role: str, t: int) -> RequestError:
    """Returns the error for rows of a node that an earlier segment has.

    Args:
        name: of the node.
        role: "given" or "requested".
        t: of one of the rows.
    """
    return RequestError(
        f"rows of '{name}' that are {role} are in an earlier segment already, one of them at "
        f"t = {t}"
    )
