"""The frames of input that a network needs around an output frame.

Kaldi finds this by trial: it gives all frames of a window, and counts the computable output frames.
This module does the same with arrays. It follows only the nodes that decide whether an output *can*
be computed. An IfDefined() can always be computed, so nothing below it matters. So recurrent
connections, which are optional at the beginning of a sequence, do not matter either.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnet3_descriptors.components import Component, ComponentProperties
from nnet3_descriptors.components.index_rules import (
    AnyWithin,
    AtOffsets,
    Windows,
    has_closed_form,
)
from nnet3_descriptors.descriptors import ForwardingDescriptor, IfDefined, Sum, SumDescriptor
from nnet3_descriptors.endless import endless_recurrence
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.indexes.arrays import (
    IndexArray,
    N,
    T,
    X,
    as_rows,
    distinct,
    make_indexes,
    moved_indexes,
)
from nnet3_descriptors.indexes.integers import INT32_MIN
from nnet3_descriptors.network_structure import NetworkStructure
from nnet3_descriptors.nodes import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)

_INPUT: Final = "input"
_IVECTOR: Final = "ivector"
_OUTPUT: Final = "output"

_WINDOWS: Final = (40, 80, 160, 320, 640)
"""Numbers of frames to try; the first one that exceeds the context by enough is taken."""
_MAX_MODULUS: Final = 2000
"""The number of positions of the window to try with each."""
_ROWS_AT_ONCE: Final = 1 << 16
"""The number of rows of a component's input that are looked up at a time."""
_MOST_READS: Final = 1 << 22
"""The limit on rows of a component's input in one window, at all positions."""
_T_BITS: Final = 32
_X_BITS: Final = 20
_MAX_ROUNDS: Final = 20
"""The rounds for which a cycle without IfDefined(), for example with Failover(), is followed."""
_SHOWN: Final = 6
"""The most nodes of a recurrence in a message."""

_MOST_MOVED: Final = 1 << 30
"""The search does not follow a node that moves rows by more frames than this."""

Keys = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def is_simple(nnet: NetworkStructure) -> bool:
    """Tells whether a network has an output "output", an input "input" and at most "ivector"."""
    inputs = {node.name for node in nnet.input_nodes}
    outputs = {node.name for node in nnet.output_nodes}
    return _OUTPUT in outputs and _INPUT in inputs and (len(inputs) == 1 or _IVECTOR in inputs)


def compute_context(
    nnet: NetworkStructure,
    computable_outputs: Callable[[int], BoolArray] | None = None,
) -> tuple[int, int]:
    """Returns the frames of input that a simple network needs before and after an output frame.

    As Kaldi defines it: from a window of input, take the first unbroken run of output frames that
    can be computed. The context is the input before this run and after it.

    Args:
        nnet: A network with one output "output" and the inputs "input" and perhaps "ivector".
        computable_outputs: Given a number of frames, tells which outputs can be computed from that
            many frames of input, for windows that begin at the frames 0, 1, ...: (modulus, frames).
            "ivector" begins `modulus` frames earlier than "input". None for the search of this
            package.

    Returns:
        left context, right context, in frames; the largest over all positions modulo
        `nnet.modulus`.

    Raises:
        NetworkError: The network is not simple, its modulus is above 2000, its components read too
            many rows to look at, or no output can be computed from 640 frames.
    """
    find = computable_outputs or functools.partial(_computable_outputs, nnet)
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
        edges = [_edges(computable) for computable in find(window)]
        found = [edge for edge in edges if edge is not None]
        if len(found) == len(edges):
            return max(left for left, _ in found), max(right for _, right in found)
    message = f"no output can be computed from a window of {_WINDOWS[-1]} frames"
    if nodes := endless_recurrence(nnet):
        shown = list(nodes)
        if len(shown) > _SHOWN:
            shown[_SHOWN // 2 : -_SHOWN // 2] = [f"{len(shown) - _SHOWN} more"]
        message += (
            f": node '{nodes[0]}' needs itself ({' <- '.join((*shown, nodes[0]))}), and no "
            "descriptor on the way has IfDefined(), which lets a sequence begin"
        )
    raise NetworkError(message)


def _edges(computable: BoolArray) -> tuple[int, int] | None:
    """Returns how many outputs are missing before and after the first run of computable ones."""
    if not computable.any():
        return None
    first = int(computable.argmax())
    rest = computable[first:]
    run = len(rest) if rest.all() else int(rest.argmin())
    return first, len(computable) - first - run


def _computable_outputs(nnet: NetworkStructure, window: int) -> BoolArray:
    """Returns which outputs can be computed from windows of input: (modulus, window)."""
    modulus, reads = nnet.modulus, _reads_of_components(nnet)
    most_reads = max(
        (each if isinstance(each, int) else each.length for each in reads.values()), default=1
    )
    at_once = max(1, _ROWS_AT_ONCE // (window * most_reads))
    deciding = _deciding_nodes(nnet)
    order = _consumers_first(nnet, deciding)
    max_rounds = _MAX_ROUNDS if _has_cycle(nnet, deciding, order) else 1
    return np.concatenate(
        [
            _Computability(nnet, deciding, order, starts, window, reads).of_output(max_rounds)
            for starts in np.split(np.arange(modulus), range(at_once, modulus, at_once))
        ]
    )


def _reads_of_components(nnet: NetworkStructure) -> dict[str, Windows | int]:
    """Returns the windows that a component reads, or how many rows for one, at least 1."""
    row = make_indexes(0, 0)
    return {
        name: _windows(component) or len(component.input_dependencies(row)[1]) or 1
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
    }


def _windows(component: Component) -> Windows | None:
    """Returns the windows that a component reads, if it reads nothing else."""
    component_type: Any = type(component)
    form = component.closed_form() if has_closed_form(component_type) else None
    if form is None or not any(isinstance(reads, AnyWithin) for reads in form):
        return None
    if any(isinstance(reads, AtOffsets) for reads in form):
        return None
    return Windows.of([reads.offsets if isinstance(reads, AnyWithin) else None for reads in form])


class _Keys:
    """One number for each index, in the order of n, then t.

    The values of x, which are few, have numbers of their own.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, indexes: IndexArray) -> Keys:
        """Returns the keys of (N, 3) indexes; n is below 2048."""
        x = indexes[:, X]
        # Nearly always there is one value, and sorting millions of equal values would take long.
        is_one = len(x) > 0 and bool((x == x[0]).all())
        values = x[:1] if is_one else distinct(x)
        numbers = np.array(
            [self._numbers.setdefault(value, len(self._numbers)) for value in values.tolist()],
            dtype=np.int64,
        )
        if len(self._numbers) > 1 << _X_BITS:
            raise NetworkError(f"the outputs need more than {1 << _X_BITS} values of x")
        keys = indexes[:, N].astype(np.int64)
        keys <<= _T_BITS
        keys += indexes[:, T]
        keys -= INT32_MIN
        keys <<= _X_BITS
        keys += numbers if is_one else numbers[np.searchsorted(values, x)]
        return keys

    def moved(self, keys: Keys, frames: int, reader: str) -> Keys:
        """Returns the keys of the indexes `frames` frames later, for a node that reads there."""
        if frames == 0:
            return keys
        return self.of(as_rows(moved_indexes(self.indexes(keys), frames, 0), reader))

    def indexes(self, keys: Keys) -> IndexArray:
        """Returns the indexes of keys that `of` has made."""
        values = np.array(list(self._numbers), dtype=np.int64)
        times = ((keys >> _X_BITS) & ((1 << _T_BITS) - 1)) + INT32_MIN
        n = keys >> (_T_BITS + _X_BITS)
        return make_indexes(n, times, values[keys & ((1 << _X_BITS) - 1)])


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
    """Which rows of the nodes can be computed from windows of input, each a sequence of its own.

    Two passes over the nodes: from the output to the inputs, collecting the rows that are asked
    for; and back, telling which of these can be computed.
    """

    def __init__(
        self,
        nnet: NetworkStructure,
        deciding: Mapping[str, tuple[str, int]],
        order: Sequence[str],
        starts: npt.NDArray[np.int64],
        window: int,
        reads: Mapping[str, Windows | int],
    ) -> None:
        self._nnet = nnet
        self._reads = reads
        self._deciding = deciding
        self._order = order
        self._first_frames = {_INPUT: starts, _IVECTOR: starts - nnet.modulus}
        self._end_frames = starts + window
        self._window = window
        self._keys = _Keys()
        self._asked: dict[str, Keys] = {}
        self._available: dict[str, BoolArray] = {}

    def of_output(self, max_rounds: int) -> BoolArray:
        """Tells for which frames of each window the output can be computed: (windows, frames).

        Args:
            max_rounds: How often the nodes are gone through; once is enough without cycles.
        """
        times = self._first_frames[_INPUT][:, None] + np.arange(self._window)
        windows = np.repeat(np.arange(len(times)), self._window)
        self._collect(self._keys.of(make_indexes(windows, times.reshape(-1))))
        order = self._order
        for _ in range(max_rounds):
            before = self._available
            self._available = dict(before)
            for name in reversed(order):
                self._available[name] = self._computable(
                    name, self._keys.indexes(self._asked[name])
                )
            if before and all((self._available[name] == before[name]).all() for name in order):
                break
        return self._available[_OUTPUT].reshape(times.shape)

    def _collect(self, wanted: Keys) -> None:
        """Fills `_asked`."""
        pending: defaultdict[str, list[Keys]] = defaultdict(list, {_OUTPUT: [wanted]})
        for _ in range(_MAX_ROUNDS):
            for name in self._order:
                asked = self._asked.get(name, wanted[:0])
                new = _distinct_keys(np.concatenate([asked[:0], *pending.pop(name, [])]))
                new = new[~_is_among(new, asked)]
                if len(new) > 0 or name not in self._asked:
                    self._asked[name] = np.sort(np.concatenate([asked, new]))
                    for source, keys in self._sources(name, self._keys.indexes(new)):
                        decider, frames = self._deciding[source]
                        pending[decider].append(self._keys.moved(keys, frames, source))
            if not pending:
                break

    def _sources(self, name: str, indexes: IndexArray) -> Iterator[tuple[str, Keys]]:
        """Returns the rows that decide whether rows of a node can be computed."""
        nnet = self._nnet
        match nnet.node(name):
            case InputNode():
                return
            case DimRangeNode(source=source):
                yield source, self._keys.of(indexes)
            case ComponentNode() as node:
                windows = self._reads[node.component]
                if isinstance(windows, Windows):
                    inputs = windows.union(indexes, f"node '{name}'")
                    self._check_reads(node, indexes, len(inputs))
                else:
                    _, inputs = self._inputs(node, indexes, windows)
                yield nnet.nodes[nnet.node_index(name) - 1].name, self._keys.of(inputs)
            case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
                for part in descriptor.parts:
                    for leaf, is_required in _required_leaves(part):
                        if is_required:
                            yield from self._leaf_sources(leaf, indexes)

    def _inputs(
        self, node: ComponentNode, indexes: IndexArray, reads: int
    ) -> tuple[npt.NDArray[np.int64], IndexArray]:
        """Returns the `input_dependencies` of a component, if they are not too many."""
        self._check_reads(node, indexes, len(indexes) * reads)
        return self._nnet.component_of(node).input_dependencies(indexes)

    def _check_reads(self, node: ComponentNode, indexes: IndexArray, reads: int) -> None:
        windows, modulus = len(self._end_frames), self._nnet.modulus
        if reads * modulus > _MOST_READS * windows:
            raise NetworkError(
                f"the context is not looked for in a window of {self._window} frames: "
                f"{len(indexes)} rows of node '{node.name}' read {reads} rows, at {windows} of "
                f"{modulus} positions, above {_MOST_READS} rows at all positions"
            )

    def _leaf_sources(
        self, leaf: ForwardingDescriptor, indexes: IndexArray
    ) -> Iterator[tuple[str, Keys]]:
        cindexes = leaf.map_to_input(indexes, self._nnet.node_indexes)
        keys = self._keys.of(cindexes[:, 1:])
        for source in distinct(cindexes[:, 0]).tolist():
            yield self._nnet.nodes[source].name, keys[cindexes[:, 0] == source]

    def _computable(self, name: str, indexes: IndexArray) -> BoolArray:
        """Tells which rows of a node can be computed, given the present answers for its sources."""
        nnet = self._nnet
        match nnet.node(name):
            case InputNode() if name not in self._first_frames:
                return np.zeros(len(indexes), dtype=np.bool_)
            case InputNode():
                n, t, x = indexes.T
                given: BoolArray = t >= self._first_frames[name][n]
                given &= t < self._end_frames[n]
                given &= x == 0
                return given
            case DimRangeNode(source=source):
                return self._look_up(source, self._keys.of(indexes))
            case ComponentNode() as node:
                source = nnet.nodes[nnet.node_index(name) - 1].name
                windows = self._reads[node.component]
                if isinstance(windows, Windows):
                    _, first, end = windows.rows_within(self._computable_rows(source), indexes)
                    return np.less(first, end)
                splits, inputs = self._inputs(node, indexes, windows)
                available = self._look_up(source, self._keys.of(inputs))
                component = nnet.component_of(node)
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
            keys = self._keys.of(cindexes[:, 1:])
            for source in distinct(cindexes[:, 0]).tolist():
                rows = cindexes[:, 0] == source
                available[number, rows] = self._look_up(self._nnet.nodes[source].name, keys[rows])
        return available

    def _computable_rows(self, name: str) -> IndexArray:
        """Returns the rows of a node, among those asked for, that are known to be computable."""
        decider, frames = self._deciding[name]
        asked = self._asked[decider]
        keys = asked[self._available.get(decider, np.zeros(len(asked), dtype=np.bool_))]
        return as_rows(moved_indexes(self._keys.indexes(keys), -frames, 0), name)

    def _look_up(self, name: str, keys: Keys) -> BoolArray:
        """Returns which rows of a node are known to be computable."""
        decider, frames = self._deciding[name]
        asked = self._asked[decider]
        if decider not in self._available or len(asked) == 0:
            return np.zeros(len(keys), dtype=np.bool_)
        keys = self._keys.moved(keys, frames, name)
        positions = np.minimum(np.searchsorted(asked, keys), len(asked) - 1)
        available: BoolArray = self._available[decider][positions]
        available &= asked[positions] == keys
        return available


def _distinct_keys(keys: Keys) -> Keys:
    """Returns the different keys, ascending."""
    if len(keys) > 0:
        first = keys.min()
        rows = keys - first
        span = int(rows.max()) >> _X_BITS
        # The windows of pooling overlap, so that millions of keys are thousands of different ones.
        if span < len(keys) and not (rows & ((1 << _X_BITS) - 1)).any():
            is_there = np.zeros(span + 1, dtype=np.bool_)
            is_there[rows >> _X_BITS] = True
            found: Keys = (np.flatnonzero(is_there) << _X_BITS) + first
            return found
    return distinct(keys)


def _is_among(keys: Keys, known: Keys) -> BoolArray:
    """Returns which keys are among others, which are sorted."""
    if not len(known):
        return np.zeros(len(keys), dtype=np.bool_)
    return np.equal(known[np.minimum(np.searchsorted(known, keys), len(known) - 1)], keys)


def _deciding_nodes(nnet: NetworkStructure) -> dict[str, tuple[str, int]]:
    """Returns for each node a node with the same computable rows, and how far they are shifted.

    If each row of a node depends on one row of one source, always at the same distance in frames,
    the source stands for the node. This holds for most nodes of a network; they need no look of
    their own. An output has no reader, and stays.
    """
    only_sources = {
        node.name: _only_source(nnet, node, nnet.nodes[number - 1].name)
        for number, node in enumerate(nnet.nodes)
    }
    deciding: dict[str, tuple[str, int]] = {}
    for name in only_sources:
        passed: dict[str, tuple[str, int]] = {}
        last = name
        while last not in deciding:
            found = only_sources[last]
            if found is None or last in passed:
                # The node has several sources or none, or is in a cycle, which must end somewhere.
                deciding[last] = last, 0
                break
            passed[last] = found
            last, _ = found
        for reader, (source, moved) in reversed(passed.items()):
            decider, frames = deciding[source]
            is_near = abs(moved + frames) <= _MOST_MOVED
            deciding.setdefault(reader, (decider, moved + frames) if is_near else (reader, 0))
    return deciding


def _only_source(nnet: NetworkStructure, node: Node, before: str) -> tuple[str, int] | None:
    """Returns the only source that rows of a node depend on, if there is one, and how far off.

    Args:
        nnet: The network.
        node: One of its nodes.
        before: The node before that one.

    Returns:
        Name of the source, and how many frames after the node's row its own is.
    """
    match node:
        case DimRangeNode(source=source):
            return source, 0
        case ComponentNode():
            is_simple = nnet.component_of(node).properties & ComponentProperties.SIMPLE
            return (before, 0) if is_simple else None
        case ComponentInputNode(descriptor=descriptor) if len(descriptor.parts) == 1:
            (part,) = descriptor.parts
            leaves = [leaf for leaf, is_required in _required_leaves(part) if is_required]
            if len(leaves) == 1 and _is_sum(part):
                name, frames, x_offset = leaves[0].shift() or ("", 0, 1)
                return (name, frames) if x_offset == 0 else None
    return None


def _is_sum(part: SumDescriptor) -> bool:
    """Tells whether a descriptor can be computed where all its required leaves can."""
    match part:
        case ForwardingDescriptor() | IfDefined():
            return True
        case Sum():
            return all(_is_sum(operand) for operand in part.operands)
    return False


def _consumers_first(nnet: NetworkStructure, deciding: Mapping[str, tuple[str, int]]) -> list[str]:
    """Returns the nodes that decide about the output, each before its sources where possible."""
    finished: dict[str, None] = {}
    entered = {_OUTPUT}
    stack = [(_OUTPUT, iter(_required_sources(nnet, deciding, _OUTPUT)))]
    while stack:
        name, sources = stack[-1]
        source = next((source for source in sources if source not in entered), None)
        if source is None:
            finished[name] = None
            stack.pop()
        else:
            entered.add(source)
            stack.append((source, iter(_required_sources(nnet, deciding, source))))
    return list(reversed(finished))


def _has_cycle(
    nnet: NetworkStructure, deciding: Mapping[str, tuple[str, int]], order: Sequence[str]
) -> bool:
    """Tells whether some node comes after a source that decides about it."""
    places = {name: place for place, name in enumerate(order)}
    return any(
        places[source] <= places[name]
        for name in order
        for source in _required_sources(nnet, deciding, name)
    )


def _required_sources(
    nnet: NetworkStructure, deciding: Mapping[str, tuple[str, int]], name: str
) -> list[str]:
    """Returns the nodes that decide whether a node can be computed."""
    sources: Iterable[str] = ()
    match nnet.node(name):
        case DimRangeNode(source=source):
            sources = (source,)
        case ComponentNode():
            sources = (nnet.nodes[nnet.node_index(name) - 1].name,)
        case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
            sources = (
                source
                for part in descriptor.parts
                for leaf, is_required in _required_leaves(part)
                if is_required
                for source in leaf.node_names
            )
    return [deciding[source][0] for source in sources]
