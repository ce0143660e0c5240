"""How many frames of input a network needs around an output frame.

Kaldi finds this by trial: all frames of a window are given, and those output frames count that can
be computed. This does the same with arrays. Only what decides whether something *can* be computed
is looked at: an IfDefined() always can, so nothing below it matters, and recurrent connections,
which are optional at the beginning of a sequence, drop out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nnet3_descriptors.descriptors import ForwardingDescriptor, IfDefined, SumDescriptor
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.indexes import IndexArray, make_indexes
from nnet3_descriptors.nodes import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    OutputNode,
)

if TYPE_CHECKING:
    from nnet3_descriptors.nnet import Nnet

_INPUT: Final = "input"
_IVECTOR: Final = "ivector"
_OUTPUT: Final = "output"

_WINDOWS: Final = (40, 80, 160, 320, 640)
"""Numbers of frames that are tried; the first that exceeds the context by enough will do."""
_MAX_MODULUS: Final = 2000
"""At how many positions of the window each is tried."""
_MAX_ROUNDS: Final = 20
"""How often a cycle is followed in which no connection is under IfDefined(), as with Failover()."""

Keys = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def is_simple(nnet: Nnet) -> bool:
    """Tells whether a network has an output "output", an input "input" and at most "ivector"."""
    inputs = {node.name for node in nnet.input_nodes}
    outputs = {node.name for node in nnet.output_nodes}
    return _OUTPUT in outputs and _INPUT in inputs and (len(inputs) == 1 or _IVECTOR in inputs)


def compute_context(nnet: Nnet) -> tuple[int, int]:
    """Returns how many frames of input a simple network needs before and behind an output frame.

    Args:
        nnet: A network with one output "output" and the inputs "input" and perhaps "ivector".

    Returns:
        left context, right context, in frames; the largest over all positions modulo
        `nnet.modulus`.

    Raises:
        NetworkError: The network is not simple, its modulus is above 2000, or no output can be
            computed from 640 frames.
    """
    return context_from_windows(nnet, _computable_outputs)


def context_from_windows(
    nnet: Nnet, computable_outputs: Callable[[Nnet, int], BoolArray]
) -> tuple[int, int]:
    """Returns the context of a network; see `compute_context`.

    It is what lies before and behind the first unbroken run of output frames that can be computed
    from a window of input, as Kaldi defines it.

    Args:
        nnet: The network.
        computable_outputs: Given the network and a number of frames, tells which outputs can be
            computed from so many frames of input, for windows that begin at the frames 0, 1, ...:
            (modulus, frames). "ivector" begins `modulus` frames earlier than "input".

    Raises:
        NetworkError: As `compute_context`.
    """
    if not is_simple(nnet):
        inputs, outputs = (
            [n.name for n in nodes] for nodes in (nnet.input_nodes, nnet.output_nodes)
        )
        raise NetworkError(
            'the context is defined for networks with "input" and "output" only, and maybe '
            f'"ivector"; this one has inputs {inputs}, outputs {outputs}'
        )
    if nnet.modulus > _MAX_MODULUS:
        raise NetworkError(
            f"the network is the same only every {nnet.modulus} frames, and the context is found "
            f"for at most {_MAX_MODULUS} positions"
        )
    for window in _WINDOWS:
        edges = [_edges(computable) for computable in computable_outputs(nnet, window)]
        found = [edge for edge in edges if edge is not None]
        if len(found) == len(edges):
            return max(left for left, _ in found), max(right for _, right in found)
    raise NetworkError(f"no output can be computed from a window of {_WINDOWS[-1]} frames")


def _edges(computable: BoolArray) -> tuple[int, int] | None:
    """Returns how many outputs are missing before and after the first run of computable ones."""
    if not computable.any():
        return None
    first = int(computable.argmax())
    rest = computable[first:]
    run = len(rest) if rest.all() else int(rest.argmin())
    return first, len(computable) - first - run


def _computable_outputs(nnet: Nnet, window: int) -> BoolArray:
    """Returns which outputs can be computed from windows of input: (modulus, window)."""
    return np.stack(
        [
            _Computability(nnet, start, window).of_output(np.arange(start, start + window))
            for start in range(nnet.modulus)
        ]
    )


def _keys(indexes: IndexArray) -> Keys:
    """Returns one number for each (t, x); n is 0 throughout."""
    return (indexes[:, 1].astype(np.int64) << 32) + indexes[:, 2]


def _indexes(keys: Keys) -> IndexArray:
    x = keys.astype(np.int32)
    return make_indexes(0, ((keys - x) >> 32).astype(np.int32), x)


def _required_leaves(part: SumDescriptor) -> Iterator[tuple[ForwardingDescriptor, bool]]:
    """Returns the leaves, and whether each can decide if the sum is computable."""
    if isinstance(part, IfDefined):
        yield from ((leaf, False) for leaf in part.leaves)
    elif isinstance(part, ForwardingDescriptor):
        yield part, True
    else:
        for operand in part.operands:
            yield from _required_leaves(operand)


class _Computability:
    """Which rows of the nodes can be computed from a window of input.

    Two passes over the nodes: from the output to the inputs, collecting the rows that are asked
    for; and back, telling which of these can be computed.
    """

    def __init__(self, nnet: Nnet, start: int, window: int) -> None:
        self._nnet = nnet
        self._first_frame = {_INPUT: start, _IVECTOR: start - nnet.modulus}
        self._end_frame = start + window
        self._asked: dict[str, Keys] = {}
        self._available: dict[str, BoolArray] = {}

    def of_output(self, times: npt.NDArray[np.int64]) -> BoolArray:
        """Tells for which of the frames, which are sorted, the output can be computed."""
        wanted = _keys(make_indexes(0, times))
        order = self._collect(wanted)
        for _ in range(_MAX_ROUNDS):
            before = self._available
            self._available = dict(before)
            for name in reversed(order):
                self._available[name] = self._computable(name, _indexes(self._asked[name]))
            if before and all((self._available[name] == before[name]).all() for name in order):
                break
        return self._available[_OUTPUT]

    def _collect(self, wanted: Keys) -> list[str]:
        """Fills `_asked`; returns the nodes, each before those that it takes its input from."""
        order = _consumers_first(self._nnet)
        pending: defaultdict[str, list[Keys]] = defaultdict(list, {_OUTPUT: [wanted]})
        for _ in range(_MAX_ROUNDS):
            for name in order:
                asked = self._asked.get(name, wanted[:0])
                new = np.setdiff1d(np.concatenate([asked[:0], *pending.pop(name, [])]), asked)
                if len(new) > 0 or name not in self._asked:
                    self._asked[name] = np.union1d(asked, new)
                    for source, keys in self._sources(name, _indexes(new)):
                        pending[source].append(keys)
            if not pending:
                break
        return order

    def _sources(self, name: str, indexes: IndexArray) -> Iterator[tuple[str, Keys]]:
        """Returns the rows that decide whether rows of a node can be computed."""
        nnet = self._nnet
        match nnet.node(name):
            case InputNode():
                return
            case DimRangeNode(source=source):
                yield source, _keys(indexes)
            case ComponentNode() as node:
                _, inputs = nnet.component_of(node).input_dependencies(indexes)
                yield nnet.nodes[nnet.node_index(name) - 1].name, _keys(inputs)
            case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
                for part in descriptor.parts:
                    for leaf, is_required in _required_leaves(part):
                        if is_required:
                            yield from self._leaf_sources(leaf, indexes)

    def _leaf_sources(
        self, leaf: ForwardingDescriptor, indexes: IndexArray
    ) -> Iterator[tuple[str, Keys]]:
        cindexes = leaf.map_to_input(indexes, self._nnet.node_indexes)
        keys = _keys(cindexes[:, 1:])
        for source in leaf.node_names:
            yield source, keys[cindexes[:, 0] == self._nnet.node_index(source)]

    def _computable(self, name: str, indexes: IndexArray) -> BoolArray:
        """Tells which rows of a node can be computed, as far as is known of its sources."""
        nnet = self._nnet
        match nnet.node(name):
            case InputNode():
                t, x = indexes[:, 1], indexes[:, 2]
                given: BoolArray = np.logical_and(t >= self._first_frame[name], t < self._end_frame)
                given &= x == 0
                return given
            case DimRangeNode(source=source):
                return self._look_up(source, _keys(indexes))
            case ComponentNode() as node:
                component = nnet.component_of(node)
                splits, inputs = component.input_dependencies(indexes)
                source = nnet.nodes[nnet.node_index(name) - 1].name
                available = self._look_up(source, _keys(inputs))
                return component.is_computable(indexes, splits, inputs, available)[0]
            case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
                computable = np.ones(len(indexes), dtype=np.bool_)
                for part in descriptor.parts:
                    computable &= part.computable(self._leaves_available(part, indexes))
                return computable

    def _leaves_available(self, part: SumDescriptor, indexes: IndexArray) -> BoolArray:
        """Returns (L, N), which leaves can be computed; False where it makes no difference."""
        leaves = tuple(_required_leaves(part))
        available = np.zeros((len(leaves), len(indexes)), dtype=np.bool_)
        for number, (leaf, is_required) in enumerate(leaves):
            if not is_required:
                continue
            cindexes = leaf.map_to_input(indexes, self._nnet.node_indexes)
            keys = _keys(cindexes[:, 1:])
            for source in leaf.node_names:
                rows = cindexes[:, 0] == self._nnet.node_index(source)
                available[number, rows] = self._look_up(source, keys[rows])
        return available

    def _look_up(self, name: str, keys: Keys) -> BoolArray:
        """Returns which rows of a node are known to be computable."""
        asked = self._asked[name]
        if name not in self._available or len(asked) == 0:
            return np.zeros(len(keys), dtype=np.bool_)
        positions = np.minimum(np.searchsorted(asked, keys), len(asked) - 1)
        available = self._available[name][positions]
        available[asked[positions] != keys] = False
        return available


def _consumers_first(nnet: Nnet) -> list[str]:
    """Returns the nodes that decide about the output, each before its sources where possible."""
    finished: dict[str, None] = {}
    entered = {_OUTPUT}
    stack = [(_OUTPUT, iter(_required_sources(nnet, _OUTPUT)))]
    while stack:
        name, sources = stack[-1]
        source = next((source for source in sources if source not in entered), None)
        if source is None:
            finished[name] = None
            stack.pop()
        else:
            entered.add(source)
            stack.append((source, iter(_required_sources(nnet, source))))
    return list(reversed(finished))


def _required_sources(nnet: Nnet, name: str) -> tuple[str, ...]:
    """Returns the nodes that decide whether a node can be computed."""
    match nnet.node(name):
        case DimRangeNode(source=source):
            return (source,)
        case ComponentNode():
            return (nnet.nodes[nnet.node_index(name) - 1].name,)
        case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
            return tuple(
                source
                for part in descriptor.parts
                for leaf, is_required in _required_leaves(part)
                if is_required
                for source in leaf.node_names
            )
    return ()
