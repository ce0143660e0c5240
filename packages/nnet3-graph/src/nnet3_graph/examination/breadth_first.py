"""Finds the rows that can be computed, hop by hop from the outputs, as Kaldi's documents do.

Every cindex has a state (`ComputableInfo`) and a usable count: 1 for a requested row; for others
the number of cindexes that might read it, are not NOT_COMPUTABLE, and have a count above 0
themselves. A hop takes the cindexes that the last one came upon. A cindex with a count of 0 becomes
WILL_NOT_COMPUTE, and the hop does not follow it. For all others the hop adds the dependencies. Then
it evaluates states until none changes any more. A cindex becomes COMPUTABLE if its computable
dependencies suffice. It becomes NOT_COMPUTABLE if they would not suffice even together with all
dependencies whose state is still unknown. So recurrences end: once the input before the first frame
turns out to be missing, no cindex uses the earlier states, and no hop follows them.

The documents leave two things open. If a cindex that is WILL_NOT_COMPUTE gets a reader after all,
the next hop examines it again. A cindex that is still UNKNOWN after the last hop depends only on
itself, so it can't be computed. Rows that read each other in a circle keep each other's counts even
when no output uses them any more; the builder leaves such rows out.

A request may be one segment of several. Like given rows, the rows of earlier segments are
COMPUTABLE from the beginning, and no hop examines their dependencies.

The package does not build graphs in this way: see `nnet3_graph.builder`. This module shows how a
request unfolds, and tests compare the builder with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationRequest, IoSpecification, RequestError
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    NetworkError,
    Nnet,
    OutputNode,
)
from nnet3_descriptors.descriptors import CindexSet
from nnet3_descriptors.indexes import INT32_MAX, LEAST_TIME, AnyIndexes, IndexArray

from nnet3_graph.arrays import BoolArray
from nnet3_graph.errors import Row
from nnet3_graph.examination.states import ComputableInfo
from nnet3_graph.graph import ComputationGraph
from nnet3_graph.request_check import check_previous, check_request, repeated

Cindex = tuple[int, int, int, int]
"""Node, n, t, x."""

MAX_HOPS = 10_000
"""The hops after which `run` gives up, as many as in Kaldi."""
_MOST_READS = 1 << 20
"""The reads of rows that are kept, each as an object or two; see `BreadthFirstExamination`."""


@attrs.frozen(kw_only=True)
class Hop:
    """The work of one hop.

    Attributes:
        number: the number of hops from the outputs, from 1 on.
        looked_at: the rows whose dependencies were added.
        left_alone: the rows that the hop did not follow, because no row would use them.
        found: the rows that came up for the first time.
        settled: the rows that this hop found to be computable, or not to be.
        counts: the number of cindexes in each state afterwards, in the order of `ComputableInfo`.
    """

    number: int
    looked_at: tuple[Row, ...]
    left_alone: tuple[Row, ...]
    found: tuple[Row, ...]
    settled: tuple[Row, ...]
    counts: tuple[int, int, int, int]

    def __str__(self) -> str:
        """One line of numbers."""
        unknown, computable, not_computable, will_not = self.counts
        return (
            f"hop {self.number}: {len(self.found)} found, {len(self.settled)} settled; now "
            f"{computable} computable, {not_computable} not computable, {unknown} unknown, "
            f"{will_not} will not be computed"
        )


@attrs.define(eq=False)
class _Record:
    """The facts about one cindex; `dependencies` is None until they are added."""

    cindex: Cindex
    info: ComputableInfo
    usable_count: int = 0
    dependencies: tuple[int, ...] | None = None
    readers: list[int] = attrs.Factory(list)


class BreadthFirstExamination:
    """Every cindex that the search for a request meets, with its state and usable count.

    `advance` makes one hop, `run` makes all hops to the end. Each cindex is an object, so this is
    for requests of some thousand rows.

    Attributes:
        nnet: the network.
        request: the rows given and wanted.
        previous: the graph of the earlier segments, or None.
        hops: the hops so far.
    """

    def __init__(
        self, nnet: Nnet, request: ComputationRequest, previous: ComputationGraph | None = None
    ) -> None:
        """Begins with the rows of the request.

        Args:
            nnet: the network.
            request: the rows given and wanted.
            previous: the pruned graph of the segments before this one, whose rows can be read.

        Raises:
            RequestError: the request does not fit the network, or names rows of an earlier segment;
                or `previous` is the graph of another network.
        """
        check_request(nnet, request)
        if previous is not None:
            check_previous(nnet, previous)
        self.nnet = nnet
        self.request = request
        self.previous = previous
        self._earlier = _cindexes_of(previous)
        self.hops: list[Hop] = []
        self._records: list[_Record] = []
        self._ids: dict[Cindex, int] = {}
        self._queue: list[int] = []
        self._num_reads = 0
        self._outputs: list[int] = []
        for io in request.inputs:
            for cindex in self._new_rows(io, "given"):
                self._records[self._add(cindex)].info = ComputableInfo.COMPUTABLE
        for io in request.outputs:
            for cindex in self._new_rows(io, "requested"):
                self._outputs.append(self._add(cindex))
                self._records[self._outputs[-1]].usable_count = 1
        self._queue = list(self._outputs)

    def __repr__(self) -> str:
        """The rows examined, and the hops."""
        return f"<BreadthFirstExamination: {len(self._records)} rows, {len(self.hops)} hops>"

    def _new_rows(self, io: IoSpecification, role: str) -> list[Cindex]:
        """Returns the rows of an input or output, none of which an earlier segment has."""
        cindexes = _cindexes(self.nnet.node_index(io.name), io.indexes)
        for cindex in cindexes:
            if cindex in self._earlier:
                raise repeated(io.name, role, cindex[2])
        return cindexes

    # -- going on ------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether no hop is left; all states are final then."""
        return not self._queue

    def run(self, max_hops: int = MAX_HOPS) -> BreadthFirstExamination:
        """Makes hops until no row is left to examine, at most `max_hops`; returns this object.

        A recurrence without a first value has no end, and its rows stay UNKNOWN.

        Raises:
            RequestError: the rules of a component refuse a row, or the rows read too many others.
        """
        while not self.is_finished and len(self.hops) < max_hops:
            self.advance()
        return self

    def advance(self) -> Hop:
        """Goes one hop further.

        Raises:
            RequestError: nothing is left, the rules of a component refuse a row, or the rows read
                too many others.
        """
        if self.is_finished:
            raise RequestError("nothing is left to be examined")
        current, self._queue = self._queue, []
        first_new = len(self._records)
        looked_at: list[int] = []
        left_alone: list[int] = []
        for each in current:
            record = self._records[each]
            if record.info == ComputableInfo.UNKNOWN and record.dependencies is None:
                (looked_at if record.usable_count else left_alone).append(each)
        for each in left_alone:
            self._records[each].info = ComputableInfo.WILL_NOT_COMPUTE
        for node, ids in self._by_node(looked_at):
            for each, found in zip(ids, self._dependencies(node, ids), strict=True):
                self._add_dependencies(each, found)
        settled = self._settle(looked_at)
        if not self._queue:
            settled += self._finish()
        counts = Counter(record.info for record in self._records)
        unknown, computable, not_computable, will_not = (counts[info] for info in ComputableInfo)
        self.hops.append(
            Hop(
                number=len(self.hops) + 1,
                looked_at=tuple(map(self._row, looked_at)),
                left_alone=tuple(map(self._row, left_alone)),
                found=tuple(map(self._row, range(first_new, len(self._records)))),
                settled=tuple(map(self._row, settled)),
                counts=(unknown, computable, not_computable, will_not),
            )
        )
        return self.hops[-1]

    def _add(self, cindex: Cindex) -> int:
        """Returns the id of a cindex, which may be new."""
        known = self._ids.get(cindex)
        if known is not None:
            return known
        info = ComputableInfo.UNKNOWN
        if cindex in self._earlier:
            info = ComputableInfo.COMPUTABLE
        elif isinstance(self.nnet.nodes[cindex[0]], InputNode):
            info = ComputableInfo.NOT_COMPUTABLE
        number = self._ids[cindex] = len(self._records)
        self._records.append(_Record(cindex, info))
        if info == ComputableInfo.UNKNOWN:
            self._queue.append(number)
        return number

    def _add_dependencies(self, reader: int, cindexes: Iterable[Cindex]) -> None:
        record = self._records[reader]
        record.dependencies = tuple(dict.fromkeys(map(self._add, cindexes)))
        self._num_reads += len(record.dependencies)
        if self._num_reads > _MOST_READS:
            raise RequestError(f"the rows examined read more than {_MOST_READS} rows")
        for each in record.dependencies:
            self._records[each].readers.append(reader)
        if record.usable_count:
            self._count(record.dependencies, 1)

    def _count(self, ids: Iterable[int], change: int) -> None:
        """Changes usable counts by +1 or -1, and then the counts that depend on them."""
        pending = list(ids)
        while pending:
            number = pending.pop()
            record = self._records[number]
            record.usable_count += change
            if record.usable_count != (1 if change > 0 else 0):
                continue  # it was usable before, and is
            if change > 0 and record.info == ComputableInfo.WILL_NOT_COMPUTE:
                record.info = ComputableInfo.UNKNOWN
                self._queue.append(number)
            if record.info != ComputableInfo.NOT_COMPUTABLE:
                pending.extend(record.dependencies or ())

    def _settle(self, ids: Iterable[int]) -> list[int]:
        """Evaluates states until none changes; returns the cindexes that have become clear."""
        settled: list[int] = []
        pending = list(ids)
        while pending:
            changed: list[int] = []
            for node, same_node in self._by_node(pending):
                computable = self._evaluate(node, same_node, self._is_computable).tolist()
                possible = self._evaluate(node, same_node, self._may_be_computable).tolist()
                for number, is_computable, may_be in zip(
                    same_node, computable, possible, strict=True
                ):
                    if is_computable:
                        self._set(number, ComputableInfo.COMPUTABLE)
                    elif not may_be:
                        self._set(number, ComputableInfo.NOT_COMPUTABLE)
                    else:
                        continue
                    changed.append(number)
            settled += changed
            readers = dict.fromkeys(r for number in changed for r in self._records[number].readers)
            pending = [r for r in readers if self._records[r].info == ComputableInfo.UNKNOWN]
        return settled

    def _set(self, number: int, info: ComputableInfo) -> None:
        record = self._records[number]
        record.info = info
        if info == ComputableInfo.NOT_COMPUTABLE and record.usable_count:
            self._count(record.dependencies or (), -1)

    def _finish(self) -> list[int]:
        """Settles what is still unknown when no hop is left: it depends on itself alone."""
        left = [
            number
            for number, record in enumerate(self._records)
            if record.info == ComputableInfo.UNKNOWN
        ]
        for number in left:
            is_usable = self._records[number].usable_count > 0
            self._set(
                number,
                ComputableInfo.NOT_COMPUTABLE if is_usable else ComputableInfo.WILL_NOT_COMPUTE,
            )
        return left

    # -- what a row reads ----------------------------------------------------------------------

    def _by_node(self, ids: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        """Yields nodes, and those of some cindexes that are rows of each."""
        by_node: dict[int, list[int]] = {}
        for each in ids:
            by_node.setdefault(self._records[each].cindex[0], []).append(each)
        yield from by_node.items()

    def _rows(self, ids: Iterable[int]) -> IndexArray:
        rows = [self._records[each].cindex[1:] for each in ids]
        return np.array(rows, dtype=np.int32).reshape(-1, 3)

    def _dependencies(self, node: int, ids: list[int]) -> Iterator[list[Cindex]]:
        """Yields all that each row of a node might read; what lies beyond 32 bits is left out."""
        definition, rows = self.nnet.nodes[node], self._rows(ids)
        match definition:
            case InputNode():
                yield from ([] for _ in ids)
            case DimRangeNode():
                source = self.nnet.node_index(definition.source)
                yield from ([cindex] for cindex in _cindexes(source, rows))
            case ComponentInputNode() | OutputNode():
                found = definition.descriptor.dependencies(rows, self.nnet.node_indexes)
                for cindexes in found.transpose(1, 0, 2).tolist():
                    yield [_cindex(each) for each in cindexes if _exists(each)]
            case ComponentNode():
                splits, inputs = self._component_inputs(definition, rows)
                for begin, end in zip(splits[:-1].tolist(), splits[1:].tolist(), strict=True):
                    yield _cindexes(node - 1, inputs[begin:end])

    def _component_inputs(
        self, node: ComponentNode, rows: IndexArray
    ) -> tuple[npt.NDArray[np.int64], IndexArray]:
        try:
            return self.nnet.component_of(node).input_dependencies(rows)
        except NetworkError as error:
            raise RequestError(f"node '{node.name}': {error}") from error

    def _evaluate(self, node: int, ids: list[int], available: CindexSet) -> BoolArray:
        """Returns which rows of a node can be computed if these cindexes can be: (len(ids),)."""
        definition, rows = self.nnet.nodes[node], self._rows(ids)
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        match definition:
            case InputNode():
                return np.zeros(len(rows), dtype=np.bool_)
            case DimRangeNode():
                return available(_with_node(self.nnet.node_index(definition.source), rows))
            case ComponentInputNode() | OutputNode():
                descriptor = definition.descriptor
                return descriptor.is_computable(rows, available, self.nnet.node_indexes)[0]
            case ComponentNode():
                splits, inputs = self._component_inputs(definition, rows)
                found = available(_with_node(node - 1, inputs))
                component = self.nnet.component_of(definition)
                return component.is_computable(rows, splits, inputs, found)[0]

    def _are(self, cindexes: npt.NDArray[np.int64], states: Iterable[ComputableInfo]) -> BoolArray:
        """Returns which of (K, 4) cindexes have come up and have one of some states."""
        wanted = frozenset(states)
        found = (self._ids.get(_cindex(each)) for each in cindexes.tolist())
        fits = [each is not None and self._records[each].info in wanted for each in found]
        return np.array(fits, dtype=np.bool_)

    def _is_computable(self, cindexes: npt.NDArray[np.int64]) -> BoolArray:
        return self._are(cindexes, [ComputableInfo.COMPUTABLE])

    def _may_be_computable(self, cindexes: npt.NDArray[np.int64]) -> BoolArray:
        # One that will not be computed might still be taken up again.
        others = set(ComputableInfo) - {ComputableInfo.NOT_COMPUTABLE}
        return self._are(cindexes, others)

    # -- what was found ------------------------------------------------------------------------

    def _row(self, number: int) -> Row:
        node, n, t, x = self._records[number].cindex
        return self.nnet.nodes[node].name, (n, t, x)

    def rows(self, *states: ComputableInfo) -> list[Row]:
        """Returns the rows that have come up and have one of some states, in the order of arrival.

        Args:
            states: the states; all if there is none.
        """
        wanted = states or tuple(ComputableInfo)
        chosen = (i for i, record in enumerate(self._records) if record.info in wanted)
        return [self._row(number) for number in chosen]

    def info(self, name: str, index: tuple[int, int, int]) -> ComputableInfo:
        """Returns the state of a row of the node of a name; UNKNOWN if it has not come up."""
        number = self._ids.get((self.nnet.node_index(name), *index))
        return ComputableInfo.UNKNOWN if number is None else self._records[number].info

    def usable_count(self, name: str, index: tuple[int, int, int]) -> int:
        """Returns the usable count of a row of the node of a name; 0 if it has not come up."""
        number = self._ids.get((self.nnet.node_index(name), *index))
        return 0 if number is None else self._records[number].usable_count

    def dependencies(self, name: str, index: tuple[int, int, int]) -> list[Row]:
        """Returns the rows that a row might read; none if no hop has examined it."""
        number = self._ids.get((self.nnet.node_index(name), *index))
        found = None if number is None else self._records[number].dependencies
        return [self._row(each) for each in found or ()]

    @property
    def missing_outputs(self) -> list[Row]:
        """The requested rows that are not known to be computable; at the end, that are not."""
        return [self._row(each) for each in self._outputs if not self._has(each)]

    def reasons(self, name: str, index: tuple[int, int, int]) -> list[Row]:
        """Returns the dependencies that keep a row from being computed.

        A dependency keeps a row from being computed if the row could not be computed without it
        even if all others could, or if it alone would be enough. If there is no such dependency,
        the result has all missing dependencies. It is empty for a row that is not NOT_COMPUTABLE,
        and for a row that reads nothing.
        """
        number = self._ids.get((self.nnet.node_index(name), *index))
        if number is None or self._records[number].info != ComputableInfo.NOT_COMPUTABLE:
            return []
        node = self._records[number].cindex[0]
        found = self._records[number].dependencies or ()
        lacking = [each for each in found if not self._has(each)]
        everything = {self._records[each].cindex for each in found}

        def would_do(extra: set[Cindex]) -> bool:
            def available(cindexes: npt.NDArray[np.int64]) -> BoolArray:
                rows = map(_cindex, cindexes.tolist())
                had = self._is_computable(cindexes)
                return had | np.array([row in extra for row in rows], dtype=np.bool_)

            return bool(self._evaluate(node, [number], available)[0])

        decisive = []
        for each in lacking:
            cindex = self._records[each].cindex
            if would_do({cindex}) or not would_do(everything - {cindex}):
                decisive.append(each)
        return [self._row(each) for each in decisive or lacking]

    def _has(self, number: int) -> bool:
        return self._records[number].info == ComputableInfo.COMPUTABLE

    def chain(self, name: str, index: tuple[int, int, int]) -> list[Row]:
        """Returns the row, a row that it lacks, a row that this one lacks, and so on.

        The chain ends with a row that reads nothing and is not given, usually a row of an input; or
        before it would repeat a row. It is empty for a row that can be computed.
        """
        row: Row = name, index
        if self.info(*row) != ComputableInfo.NOT_COMPUTABLE:
            return []
        chain = [row]
        while True:
            lacking = [each for each in self.reasons(*chain[-1]) if each not in chain]
            known = [each for each in lacking if self.info(*each) == ComputableInfo.NOT_COMPUTABLE]
            if not known:
                return chain
            chain.append(known[0])


def _cindex(values: Iterable[int]) -> Cindex:
    node, n, t, x = values
    return node, n, t, x


def _cindexes(node: int, rows: IndexArray) -> list[Cindex]:
    return [(node, n, t, x) for n, t, x in rows.tolist()]


def _cindexes_of(graph: ComputationGraph | None) -> frozenset[Cindex]:
    """Returns the cindexes of a graph and of the segments before it."""
    found: set[Cindex] = set()
    while graph is not None:
        found.update(map(_cindex, graph.cindexes.tolist()))
        graph = graph.previous
    return frozenset(found)


def _with_node(node: int, rows: AnyIndexes) -> npt.NDArray[np.int64]:
    """Returns (K, 4) cindexes of rows of one node."""
    return np.insert(rows.astype(np.int64), 0, node, axis=1)


def _exists(cindex: list[int]) -> bool:
    """Returns whether t and x are such that there can be a row."""
    return all(LEAST_TIME <= value <= INT32_MAX for value in cindex[2:])
