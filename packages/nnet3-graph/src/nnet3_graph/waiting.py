"""How long rows of an endless input wait for others that they can also be computed without."""

from __future__ import annotations

from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import T

from nnet3_graph.nodes.rules import node_rules
from nnet3_graph.reach import MAX_STEPS, find_reach
from nnet3_graph.request import ComputationRequest
from nnet3_graph.sets.patterns import find_patterns


def longest_wait(nnet: Nnet) -> int:
    """Returns a number of frames after which every row that can ever be computed is computable.

    On the way from an output to an input, each node may read as far away as it ever does, and in a
    recurrence twice: what a row waits for may have waited for others there. Rows at certain times
    only, as with Round, may wait for the next such time at both ends.

    Returns:
        An upper bound; 0 if no row can be computed before all that it might read.
    """
    rules = node_rules(nnet)
    if not any(rule.has_optional_reads for rule in rules.rules):
        return 0
    waits = [0] * len(rules.rules)
    for group, is_recurrent in zip(rules.groups, rules.recurrent, strict=True):
        own = sum(max((abs(t) for t, _ in rules.rules[node].moves), default=0) for node in group)
        sources = (source for node in group for source in rules.rules[node].sources)
        before = max((waits[source] for source in sources), default=0)
        for node in group:
            waits[node] = before + own * (2 if is_recurrent else 1)
    return max(waits, default=0) + 2 * (nnet.modulus - 1)


def last_missing_time(nnet: Nnet, request: ComputationRequest, before: int) -> int | None:
    """Returns the largest t of a row that might be read, and cannot be computed.

    Of endless recurrences, only rows between the times of the request and of what it reads count.

    Args:
        nnet: The network.
        request: The inputs and outputs.
        before: The first t that does not count.

    Returns:
        A t below `before`; None if no such row is missing.

    Raises:
        RequestError: See `build_computation_graph`.
    """
    patterns = find_patterns([io.indexes for io in (*request.inputs, *request.outputs)], None)
    given, outputs = (
        {nnet.node_index(io.name): patterns.representative_rows(io.indexes) for io in ios}
        for ios in (request.inputs, request.outputs)
    )
    # Rows that no input could make computable count too: they are missing at the beginning. What an
    # endless recurrence would read before all rows that are named is missing anyway.
    reach = find_reach(
        node_rules(nnet),
        patterns.num_patterns,
        given,
        outputs,
        only_possible=False,
        max_steps=(0, MAX_STEPS[1]),
    )
    last: int | None = None
    for need, have in zip(reach.need, reach.have, strict=True):
        missing = need & ~have
        if missing:
            times = reach.layout.indexes(missing)[:, T]
            times = times[times < before]
            if len(times) and (last is None or times.max() > last):
                last = int(times.max())
    return last
