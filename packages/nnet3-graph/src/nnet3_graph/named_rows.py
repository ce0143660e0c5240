"""The rows that a request and the segments before it name, which every search starts from."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import IndexArray

from nnet3_graph.graph import ComputationGraph
from nnet3_graph.nodes.rules import NodeRules, node_rules
from nnet3_graph.reach import MAX_STEPS, Earlier, Reach, find_reach
from nnet3_graph.sets.bit_layout import BitLayout, Bits
from nnet3_graph.sets.patterns import Patterns, Ranks, find_patterns


@attrs.frozen(kw_only=True, eq=False)
class NamedRows:
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
