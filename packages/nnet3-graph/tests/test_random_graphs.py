"""Graphs of random networks agree with their definition, applied to one cindex at a time."""

import itertools

import numpy as np
import pytest
from graph_one_by_one import Bounds, blamed_one_by_one, build_one_by_one, might_read, usable_counts
from graph_strategies import (
    MARGIN,
    STEP,
    networks_and_requests,
    networks_and_two_requests,
    request_of,
)
from hypothesis import assume, event, given, settings
from nnet3_descriptors import ComponentInputNode, InputNode, OutputNode, parse_config
from nnet3_descriptors.indexes import as_indexes
from nnet3_graph import (
    ComputableInfo,
    ComputationGraphBuilder,
    NotComputableError,
    UnboundedComputationError,
    build_computation_graph,
)
from nnet3_graph.sets import bits, index_set
from small_networks import request_for, stacked

random_networks = settings(max_examples=3 * settings.default.max_examples // 5)


def named(nnet, cindexes):
    """Rows of an array of cindexes as tuples with node names."""
    names = nnet.node_names
    return [(names[node], n, t, x) for node, n, t, x in cindexes.tolist()]


def rows_of(splits, values):
    """The values of each row of a CSR form."""
    bounds = splits.tolist()
    return [values[begin:end].tolist() for begin, end in itertools.pairwise(bounds)]


def build_or_skip(nnet, request, previous=None):
    """The graph; skips requests that cannot be computed."""
    try:
        return build_computation_graph(nnet, request, previous)
    except (NotComputableError, UnboundedComputationError):
        assume(False)


@pytest.mark.parametrize("few_rows_in_large_boxes", [False, True])
@random_networks
@given(networks_and_requests())
def test_same_graph_as_one_by_one(few_rows_in_large_boxes, example):
    """Computability, cindexes, inputs and dependencies are those of the definition."""
    nnet, request = example
    with pytest.MonkeyPatch.context() as patch:
        if few_rows_in_large_boxes:
            for module in (bits, index_set):
                patch.setattr(module, "is_table_worthwhile", lambda entries, rows: False)
        check_against_definition(nnet, request)


def check_against_definition(nnet, request):
    """Compares a graph with that of the definition."""
    expected = build_one_by_one(nnet, request, MARGIN, STEP)
    builder = ComputationGraphBuilder(nnet, request)
    builder.compute()

    assert builder.all_outputs_are_computable() == (not expected.missing_outputs)
    if expected.missing_outputs:
        event("not computable")
        with pytest.raises(NotComputableError) as caught:
            builder.prune()
        has_end = check_explanation(nnet, request, expected, caught.value)
        event("blame with an end" if has_end else "blame without end")
        return
    if expected.is_endless:
        event("endless")
        with pytest.raises(UnboundedComputationError):
            builder.prune()
        return
    event("computable")
    builder.prune()
    check_graph(nnet, builder.graph, expected)


def check_graph(nnet, graph, expected):
    """Compares the cindexes, given rows and dependencies of a graph; checks the order of cindexes.

    The order is by node, t, x and n.
    """
    cindexes = named(nnet, graph.cindexes)
    assert set(cindexes) == expected.cindexes
    node, n, t, x = graph.cindexes.T
    assert (np.diff(np.lexsort((n, x, t, node))) == 1).all()
    assert [cindex in expected.given for cindex in cindexes] == graph.is_input.tolist()
    for cindex, read in zip(
        cindexes, rows_of(graph.dependency_splits, graph.dependencies), strict=True
    ):
        assert read == sorted(set(read))
        assert {cindexes[each] for each in read} == expected.used.get(cindex, set())


def check_explanation(nnet, request, expected, error):
    """The error names all missing outputs and inputs, and a chain of rows that need one another.

    Returns whether the inputs were compared: they are not if blame goes round without end.
    """
    missing = {
        (name, *index)
        for name, indexes in error.missing_outputs.items()
        for index in map(tuple, indexes.tolist())
    }
    assert missing == expected.missing_outputs
    chain = [(name, *index) for name, index in error.chain]
    assert chain[0] in missing
    for row, needed in itertools.pairwise(chain):
        assert needed in might_read(nnet, row)
        assert needed not in expected.computable
    blamed = blamed_one_by_one(nnet, expected, Bounds.around(request, STEP))
    if blamed is not None:
        inputs = {cindex for cindex in blamed if isinstance(nnet.node(cindex[0]), InputNode)}
        assert missing_frames(error) == inputs
    return blamed is not None


@pytest.mark.parametrize(
    "descriptor",
    [
        "Sum(Offset(b, -1), input)",
        "Sum(Offset(a, 3), Offset(b, 2), input)",
        "Sum(Failover(Offset(b, -2), Offset(a, -7)), IfDefined(Offset(a, -5)), input)",
        "Sum(Round(Offset(b, -3), 3), input)",
        "Sum(Switch(Offset(a, -3), Offset(b, -1)), input)",
        "Sum(Offset(b, -20), Offset(input, 3), input)",
    ],
)
def test_blame_of_far_rows(descriptor):
    """What outputs lack hundreds of frames away is found, also where sequences differ."""
    reading = "b Distribute input-dim=2 output-dim=1 input=Append(a, a)"
    nnet = parse_config(stacked(1, reading, f"a NoOp dim=1 input={descriptor}"))
    given = [(0, t, 0) for t in range(150)] + [(1, t, 0) for t in range(150) if t != 77]
    request = request_of(given, [(0, 149, 0), (1, 0, 0), (1, 149, 0)])
    expected = build_one_by_one(nnet, request, MARGIN, STEP)
    with pytest.raises(NotComputableError) as caught:
        build_computation_graph(nnet, request)
    assert check_explanation(nnet, request, expected, caught.value)


def missing_frames(error):
    """The missing cindexes of input nodes, by an error."""
    return {
        (missing.node, n, t, missing.x)
        for missing in error.missing_inputs
        for n in missing.sequences
        for first, last in missing.ranges
        for t in range(first, last + 1)
    }


@random_networks
@given(networks_and_requests())
def test_look_ups(example):
    """Ids, ranges of nodes, leaves and component inputs agree with the graph's arrays."""
    nnet, request = example
    graph = build_or_skip(nnet, request)
    all_reads = rows_of(graph.dependency_splits, graph.dependencies)
    for node, definition in enumerate(nnet.nodes):
        ids = graph.node_range(node)
        rows = graph.cindexes[ids, 1:]
        assert (graph.cindexes[ids, 0] == node).all()
        assert graph.index_set(node).indexes.tolist() == rows.tolist()
        assert graph.cindex_ids(node, rows[::-1]).tolist() == list(range(ids.start, ids.stop))[::-1]
        present = set(map(tuple, rows.tolist()))
        moved = rows + np.array([0, 1, 0], dtype=np.int32)
        found = graph.cindex_ids(node, moved)
        assert [tuple(index) in present for index in moved.tolist()] == (found >= 0).tolist()
        assert found.tolist() == graph.moved_ids(node, node, 1, 0).tolist()
        if isinstance(definition, ComponentInputNode | OutputNode):
            leaves = np.concatenate(graph.leaf_ids(node))
            check_leaves(graph, definition.descriptor, rows, leaves)
            entering = [sorted(set(leaf[leaf >= 0].tolist())) for leaf in leaves.T]
            assert entering == all_reads[ids]


def check_leaves(graph, descriptor, rows, leaves):
    """The inputs of a descriptor are those that it reads, given all cindexes of the graph."""
    numbers = graph.nnet.node_indexes
    ids = graph.find(descriptor.dependencies(rows, numbers).reshape(-1, 4)).reshape(leaves.shape)
    computable, used = descriptor.is_computable(rows, lambda each: graph.find(each) >= 0, numbers)
    assert computable.all()
    assert np.where(used, ids, -1).tolist() == leaves.tolist()


@random_networks
@given(networks_and_requests())
def test_what_was_examined(example):
    """States and usable counts follow their definitions; unexamined cindexes are unknown."""
    nnet, request = example
    expected = build_one_by_one(nnet, request, MARGIN, STEP)
    assume(not expected.goes_on)
    examined = check_states(nnet, request, expected)
    assert examined.info(0, as_indexes([[0, 10**6, 0]])).tolist() == [ComputableInfo.UNKNOWN]


@random_networks
@given(networks_and_two_requests())
def test_what_was_examined_for_a_second_segment(example):
    """The same for the second of two segments, which reads rows of the first."""
    nnet, first, second = example
    earlier = frozenset(named(nnet, build_or_skip(nnet, first).cindexes))
    expected = build_one_by_one(nnet, second, MARGIN, STEP, earlier)
    assume(not expected.goes_on)
    check_states(nnet, second, expected, build_computation_graph(nnet, first))


def check_states(nnet, request, expected, previous=None, first=()):
    """Compares states and counts with the definition; returns what was examined.

    `first` has the cindexes of the segments before the previous one.
    """
    builder = ComputationGraphBuilder(nnet, request, previous)
    builder.compute()
    examined = builder.examined
    graph = examined.graph
    before = [*first, *(named(nnet, previous.cindexes) if previous is not None else [])]
    cindexes = named(nnet, graph.cindexes)
    for cindex, read in zip(
        cindexes, rows_of(graph.dependency_splits, graph.dependencies), strict=True
    ):
        might = set() if cindex in expected.given else might_read(nnet, cindex)
        assert {(before + cindexes)[each] for each in read} <= might
    counts = usable_counts(nnet, request, expected)
    states, usable = examined.computable_info.tolist(), examined.usable_counts.tolist()
    found = {cindex: count for cindex, count in zip(cindexes, usable, strict=True) if count}
    assert found == {each: counts[each] for each in counts if each not in expected.earlier}
    for cindex, info, count in zip(cindexes, states, usable, strict=True):
        if cindex in expected.given:
            assert info == ComputableInfo.COMPUTABLE
        elif count == 0:
            assert info == ComputableInfo.WILL_NOT_COMPUTE
        else:
            assert (info == ComputableInfo.COMPUTABLE) == (cindex in expected.computable)
            assert info in (ComputableInfo.COMPUTABLE, ComputableInfo.NOT_COMPUTABLE)
    return examined


SAME = """
    input-node name=input dim=1
    component name=same type=NoOpComponent dim=1
"""


@pytest.mark.parametrize(
    ("nodes", "states"),
    [
        pytest.param(
            "component-node name=a component=same input=Sum(input, IfDefined(Offset(a, -1)))\n"
            "output-node name=output input=a",
            {
                "a": [(-1, "NOT_COMPUTABLE", 1), (0, "COMPUTABLE", 1)],
                "input": [(0, "COMPUTABLE", 1)],
            },
            id="a recurrence ends before the first frame",
        ),
        pytest.param(
            "component-node name=a component=same input=Sum(input, ReplaceIndex(a, t, 0))\n"
            "output-node name=output input=Failover(a, input)",
            {"a": [(0, "NOT_COMPUTABLE", 1)], "output": [(0, "COMPUTABLE", 1)]},
            id="rows that depend only on themselves cannot be computed",
        ),
        pytest.param(
            "component-node name=a component=same input=Failover(a, Const(1.0, 1))\n"
            "component-node name=b component=same input=Sum(a, Offset(input, 1))\n"
            "output-node name=output input=Failover(b, input)",
            {"a": [], "b": [(0, "NOT_COMPUTABLE", 1)], "output": [(0, "COMPUTABLE", 1)]},
            id="what only a missing row would read is not looked at",
        ),
        pytest.param(
            "component-node name=late component=same input=input\n"
            "component-node name=lacking component=same input=Sum(late, Offset(input, 99))\n"
            "component-node name=a component=same input=late\n"
            "output-node name=output input=Sum(a, IfDefined(lacking))",
            {"late": [(0, "COMPUTABLE", 1)], "lacking": [(0, "NOT_COMPUTABLE", 1)]},
            id="a row counts once one reader can be computed",
        ),
    ],
)
def test_states(nodes, states):
    """The states and usable counts of some nodes; the input is given at t = 0 alone."""
    nnet = parse_config(SAME + nodes)
    builder = ComputationGraphBuilder(nnet, request_for(range(1), range(1)))
    builder.compute()

    examined = builder.examined
    rows = zip(
        named(nnet, examined.graph.cindexes),
        examined.computable_info.tolist(),
        examined.usable_counts.tolist(),
        strict=True,
    )
    found = {name: [] for name in states}
    for (name, _, t, _), info, count in rows:
        if name in states:
            found[name].append((t, ComputableInfo(info).name, count))
    assert found == states


@random_networks
@given(networks_and_two_requests())
def test_two_segments(example):
    """A later segment reads rows of the earlier one, and has only new rows."""
    nnet, first, second = example
    previous = build_or_skip(nnet, first)
    earlier = frozenset(named(nnet, previous.cindexes))
    expected = build_one_by_one(nnet, second, MARGIN, STEP, earlier)
    assume(not expected.missing_outputs and not expected.is_endless)

    graph = build_computation_graph(nnet, second, previous)

    assert graph.segment_ends == (len(earlier), len(earlier) + len(expected.cindexes))
    assert graph.first_cindex_id == len(earlier)
    cindexes = named(nnet, previous.cindexes) + named(nnet, graph.cindexes)
    assert set(cindexes[len(earlier) :]) == expected.cindexes
    event("reads from the first" if (graph.dependencies < len(earlier)).any() else "stands alone")
    for cindex, read in zip(
        cindexes[len(earlier) :],
        rows_of(graph.dependency_splits, graph.dependencies),
        strict=True,
    ):
        assert {cindexes[each] for each in read} == expected.used.get(cindex, set())
