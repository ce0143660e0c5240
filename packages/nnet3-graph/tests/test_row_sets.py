"""The rows that recurrences demand, compared with a search row by row."""

import contextlib

import attrs
import pytest
from graph_strategies import request_of
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors import parse_config
from nnet3_descriptors.components import DistributeComponent
from nnet3_graph import NotComputableError, build_computation_graph, explain
from nnet3_graph.nodes import NodeRules, find_cycles, node_rules, reads_of_any_row
from nnet3_graph.rows import demanded_rows
from nnet3_graph.rules import All, Asked, First, Optional, Shift
from nnet3_graph.sets.bits import BitLayout
from small_networks import stacked

PATTERNS, TIMES, XS = 2, 9, 3


@attrs.frozen
class CountedShift(Shift):
    """A rule that counts its calls."""

    calls: list = attrs.field(factory=list, eq=False)

    def demand(self, rows, layout, need):
        """Counts the call, and applies the rule."""
        self.calls.append(rows)
        super().demand(rows, layout, need)


@st.composite
def recurrences(draw):
    """Rules of nodes that read each other, as (source, t, x)."""
    count = draw(st.integers(1, 3))
    offsets = st.integers(-2, 2)
    reads = [
        [(draw(st.integers(0, count - 1)), draw(offsets), draw(st.sampled_from([0, 0, 0, -1, 1])))]
        for _ in range(count)
    ]
    for _ in range(draw(st.integers(0, 2))):
        reads[draw(st.integers(0, count - 1))].append(
            (draw(st.integers(0, count - 1)), draw(offsets), 0)
        )
    return reads


def rule_of(reads):
    """A rule with these reads, some of them nested."""
    first, *others = [Shift(*read) for read in reads]
    return All((Optional(First((first, *others[1:]))), *others[:1]))


def nodes_of(rules):
    """Rules of nodes that all belong to one group."""
    group = tuple(range(len(rules)))
    moves = [move for rule in rules for move in rule.moves]
    return NodeRules(
        rules=tuple(rules),
        groups=(group,),
        recurrent=(True,),
        cycles=(find_cycles(dict(enumerate(map(reads_of_any_row, rules))), group),),
        moves=(max(abs(t) for t, _ in moves), max(abs(x) for _, x in moves)),
        has_alternatives=True,
    )


def layout_of(nodes, num_t=TIMES, num_x=XS, num_patterns=PATTERNS):
    """A box with guards for the moves of these nodes."""
    return BitLayout(
        t_first=0,
        num_t=num_t,
        x_first=0,
        num_x=num_x,
        num_patterns=num_patterns,
        t_guard=min(nodes.moves[0], num_t - 1),
        x_guard=min(nodes.moves[1], num_x - 1),
    )


rows = st.sets(
    st.tuples(
        st.integers(0, PATTERNS - 1), st.integers(0, TIMES - 1), st.integers(0, XS - 1)
    )
)  # fmt: skip


def bits_of(layout, indexes):
    """The rows (pattern, t, x) as bits."""
    return sum(1 << (n * layout.pattern + x * layout.row + t) for n, t, x in indexes)


@given(recurrences(), st.lists(rows, min_size=9, max_size=9))
def test_demand_of_recurrences(reads, sets):
    """The demanded rows are those of a search row by row, whatever is given or out of bounds."""
    nodes = nodes_of([rule_of(each) for each in reads])
    layout = layout_of(nodes)
    count = len(reads)
    outside, supplied, wanted = sets[:count], sets[3 : 3 + count], sets[6 : 6 + count]
    box = {(n, t, x) for n in range(PATTERNS) for t in range(TIMES) for x in range(XS)}

    found = demanded_rows(
        nodes,
        layout,
        [bits_of(layout, box - each) for each in outside],
        [bits_of(layout, each) for each in supplied],
        {node: bits_of(layout, each) for node, each in enumerate(wanted)},
    )

    expected = [set() for _ in reads]
    pending = [(node, row) for node in range(count) for row in wanted[node]]
    while pending:
        node, row = pending.pop()
        if row in expected[node] or row in outside[node] or row not in box:
            continue
        expected[node].add(row)
        if row not in supplied[node]:
            n, t, x = row
            pending += [(each, (n, t + dt, x + dx)) for each, dt, dx in reads[node]]
    assert found == [bits_of(layout, each) for each in expected]


@pytest.mark.parametrize("frames", [1000, 100_000])
@pytest.mark.parametrize("step", [-3, 1])
def test_long_recurrences_take_few_rounds(frames, step):
    """A recurrence over 100,000 frames takes a few tens of steps."""
    there, back = CountedShift(1, 0, 0), CountedShift(0, step, 0)
    nodes = nodes_of([there, back])
    layout = layout_of(nodes, frames, 1, 2)
    first = frames - 1 if step < 0 else 0
    everything = layout.box(layout.hull)

    found, _ = demanded_rows(
        nodes, layout, [everything, everything], [0, 0], {0: bits_of(layout, [(1, first, 0)])}
    )

    times = range(frames)[::step] if step > 0 else range(frames)[::-1][::-step]
    assert found == bits_of(layout, [(1, t, 0) for t in times])
    assert len(there.calls) + len(back.calls) < 20


@pytest.mark.parametrize("step", [-1, -3])
def test_long_recurrences_of_two_nodes_take_few_rounds(step):
    """So does a recurrence of cell and output that read each other; rounds end at either."""
    frames = 100_000
    gates, cell, output, state = range(4)
    reads = {gates: [(output, step)], cell: [(gates, 0), (state, step)], output: [(cell, 0)],
             state: [(cell, 0)]}  # fmt: skip
    shifts = [[CountedShift(node, t, 0) for node, t in reads[each]] for each in reads]
    nodes = nodes_of([All(tuple(Optional(shift) for shift in each)) for each in shifts])
    layout = layout_of(nodes, frames, 1, 2)
    everything = layout.box(layout.hull)

    found = demanded_rows(
        nodes, layout, [everything] * 4, [0] * 4, {output: bits_of(layout, [(1, frames - 1, 0)])}
    )

    times = range(frames)[::-1][::-step]
    cells, others = (bits_of(layout, [(1, t, 0) for t in some]) for some in (times, times[1:]))
    assert found == [cells, cells, cells, others]
    assert sum(len(shift.calls) for each in shifts for shift in each) < 30


def test_ways_round_a_network():
    """Ways through components, dim ranges, sums and alternatives are found, in t and x."""
    nnet = parse_config(
        "input-node name=input dim=4\n"
        "component name=a type=NoOpComponent dim=4\ncomponent name=b type=NoOpComponent dim=2\n"
        "component-node name=a component=a input=Append("
        "Sum(IfDefined(Offset(b, -3)), Failover(Offset(d, 2, 1), Offset(d, -1))), Round(b, 2))\n"
        "dim-range-node name=d input-node=a dim-offset=0 dim=2\n"
        "component-node name=b component=b input=d\noutput-node name=output input=b\n"
    )
    nodes = node_rules(nnet)

    ways = {
        (cycle.t, cycle.x, tuple(sorted(nnet.nodes[node].name for node, _, _ in cycle.stops)))
        for cycles in nodes.cycles
        for cycle in cycles
    }

    assert ways == {
        (-3, 0, ("a", "a_input", "b", "b_input", "d")),
        (2, 1, ("a", "a_input", "d")),
        (-1, 0, ("a", "a_input", "d")),
    }


@pytest.mark.parametrize("descriptor", ["Offset(r, -1)", "Failover(Offset(r, -2), Offset(r, -3))"])
def test_long_blame_takes_few_rounds(descriptor, monkeypatch):
    """A recurrence that lacks its first value 100,000 frames away is followed in few steps."""
    read = f"Sum({descriptor}, ReplaceIndex(input, t, 0))"
    nnet = parse_config(stacked(4, "r NoOp dim=4", splice=read))
    request = request_of([(0, 0, 0), (1, 0, 0)], [(0, 1, 0), (1, 100_000, 0)])
    calls, demand = [], explain.demand_blamed

    def counted(*arguments):
        calls.append(arguments)
        demand(*arguments)

    monkeypatch.setattr(explain, "demand_blamed", counted)
    with pytest.raises(NotComputableError, match="depends on itself without end"):
        build_computation_graph(nnet, request)
    assert len(calls) < 30


@pytest.mark.parametrize("blocks", [1, 2])
def test_long_recurrences_through_components_ask_few_times(blocks, monkeypatch):
    """A component without a closed form is asked about all rows at once."""
    affine = f"r Affine input-dim=4 output-dim={4 * blocks}"
    distribute = f"d Distribute input-dim={4 * blocks} output-dim=4"
    past = "Sum(input, IfDefined(Offset(d, -1)))"
    nnet = parse_config(stacked(4, affine, distribute, splice=past))
    rows = [(0, t, 0) for t in range(5000)]
    calls, asked = [], DistributeComponent.input_dependencies

    def counted(self, rows):
        calls.append(rows)
        return asked(self, rows)

    monkeypatch.setattr(DistributeComponent, "input_dependencies", counted)
    for last, outcome in (
        (4999, contextlib.nullcontext()),
        (5000, pytest.raises(NotComputableError)),
    ):
        with outcome:
            graph = build_computation_graph(nnet, request_of(rows, [(0, last, 0)]))
    assert graph.counts_by_node()["d"] == 5000
    assert len(calls) < 60


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_rows_that_read_the_same_row(blocks):
    """They are found in every pattern, at every t and x of a layout."""
    rule = Asked(0, DistributeComponent(input_dim=blocks, output_dim=1))
    layout = BitLayout(
        t_first=-2, num_t=5, x_first=-3, num_x=7, num_patterns=2, t_guard=1, x_guard=0
    )
    same = layout.indexes(rule.same_rows(layout)).tolist()
    assert sorted(map(tuple, same)) == [
        (n, t, x) for n in range(2) for t in range(-2, 3) for x in range(-3, 4) if x // blocks == x
    ]
