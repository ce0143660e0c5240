"""The examination hop by hop, compared with the graph builder."""

import itertools

import pytest
from graph_one_by_one import build_one_by_one
from graph_strategies import (
    MARGIN,
    STEP,
    networks_and_requests,
    networks_and_two_requests,
)
from hypothesis import assume, event, given, settings
from nnet3_computation import ComputationRequest, IoSpecification, RequestError
from nnet3_descriptors import InputNode, parse_config
from nnet3_graph import (
    BreadthFirstExamination,
    ComputableInfo,
    ComputationGraphBuilder,
    NotComputableError,
    UnboundedComputationError,
    build_computation_graph,
)

UNKNOWN, COMPUTABLE, NOT_COMPUTABLE, WILL_NOT_COMPUTE = ComputableInfo

random_networks = settings(max_examples=settings.default.max_examples // 2)

RECURRENT = """
    input-node name=input dim=1
    component name=sum type=NoOpComponent dim=1
    component-node name=state component=sum input=Sum(input, IfDefined(Offset(state, -1)))
    output-node name=output input=state
"""


def request_of(given, wanted):
    """A request for one sequence: ranges of t for each input, and for the output."""
    io = IoSpecification.from_range
    return ComputationRequest(
        inputs=[io(name, *times) for name, times in given.items()], outputs=[io("output", *wanted)]
    )


def named(nnet, graph):
    """The rows of a graph."""
    names = nnet.node_names
    return [(names[node], (n, t, x)) for node, n, t, x in graph.cindexes.tolist()]


def rows_so_far(nnet, graph):
    """The rows of a graph and of earlier segments."""
    rows = set()
    while graph is not None:
        rows.update(named(nnet, graph))
        graph = graph.previous
    return rows


def missing_frames(error):
    """The missing rows of input nodes, by an error."""
    return {
        (missing.node, (n, t, missing.x))
        for missing in error.missing_inputs
        for n in missing.sequences
        for first, last in missing.ranges
        for t in range(first, last + 1)
    }


@random_networks
@given(networks_and_requests())
def test_same_as_the_builder(example):
    """States, counts and reasons agree with the builder and with the definition."""
    nnet, request = example
    expected = build_one_by_one(nnet, request, MARGIN, STEP)
    assume(not expected.goes_on)
    event("not computable" if expected.missing_outputs else "computable")
    found = check_against_builder(nnet, request)
    computable = {(name, tuple(index)) for name, *index in expected.computable}
    assert set(found.rows(COMPUTABLE)) <= computable
    assert not set(found.rows(NOT_COMPUTABLE)) & computable


@random_networks
@given(networks_and_two_requests())
def test_second_segment(example):
    """The same for the second of two segments, which reads rows of the first."""
    nnet, first, second = example
    try:
        previous = build_computation_graph(nnet, first)
    except (NotComputableError, UnboundedComputationError):
        assume(False)
    found = check_against_builder(nnet, second, previous)
    read = {row for each in found.rows() for row in found.dependencies(*each)}
    event("reads the first" if read & set(named(nnet, previous)) else "stands alone")


def check_against_builder(nnet, request, previous=None):
    """Compares final states and counts with those of the builder; returns the states."""
    found = BreadthFirstExamination(nnet, request, previous).run(max_hops=300)
    builder = ComputationGraphBuilder(nnet, request, previous)
    builder.compute()
    examined = builder.examined

    assert builder.all_outputs_are_computable() == (not found.missing_outputs)
    if not found.is_finished:  # a recurrence without a first value
        assert found.rows(UNKNOWN)
        return found
    assert not found.rows(UNKNOWN)
    rows = named(nnet, examined.graph)
    states, counts = examined.computable_info.tolist(), examined.usable_counts.tolist()
    usable = {
        row: (state, count) for row, state, count in zip(rows, states, counts, strict=True) if count
    }
    earlier = rows_so_far(nnet, previous)
    expected = {
        row: (found.info(*row), found.usable_count(*row))
        for row in found.rows()
        if found.usable_count(*row) and row not in earlier
    }
    reached = rows_that_outputs_use(found) - earlier
    if reached != set(expected):  # rows that read each other keep each other's counts
        usable = {row: state for row, (state, _) in usable.items()}
        expected = {row: state for row, (state, _) in expected.items() if row in reached}
    assert usable == expected
    assert not earlier & set(found.rows(UNKNOWN, NOT_COMPUTABLE, WILL_NOT_COMPUTE))
    assert not any(found.dependencies(*row) for row in earlier)
    if not found.missing_outputs:
        builder.prune()
        assert set(named(nnet, builder.graph)) <= set(found.rows(COMPUTABLE))
        return found
    with pytest.raises(NotComputableError) as caught:
        builder.prune()
    check_reasons(nnet, found, caught.value)
    return found


def rows_that_outputs_use(found):
    """The requested rows, and what rows read that are used and not NOT_COMPUTABLE."""
    rows, pending = (
        set(),
        [
            (io.name, index)
            for io in found.request.outputs
            for index in map(tuple, io.indexes.tolist())
        ],
    )
    while pending:
        row = pending.pop()
        if row not in rows:
            rows.add(row)
            if found.info(*row) != NOT_COMPUTABLE:
                pending += found.dependencies(*row)
    return rows


def check_reasons(nnet, found, error):
    """Error and examination name the same outputs, and chains that support each other."""
    assert set(found.missing_outputs) == {
        (name, index)
        for name, indexes in error.missing_outputs.items()
        for index in map(tuple, indexes.tolist())
    }
    for row, needed in itertools.pairwise(error.chain):
        if found.dependencies(*row):
            assert needed in found.dependencies(*row)
            assert found.info(*needed) != COMPUTABLE
    for output in found.missing_outputs:
        chain = found.chain(*output)
        assert chain[0] == output
        for row, needed in itertools.pairwise(chain):
            assert needed in found.reasons(*row)
        inputs = {row for row in blamed(found, output) if isinstance(nnet.node(row[0]), InputNode)}
        # Of a row that also lacks something else, the error omits what its recurrence lacks.
        assert not inputs or inputs & missing_frames(error)


def blamed(found, output):
    """The rows that an output lacks, the rows that those lack, and so on."""
    rows, pending = set(), [output]
    while pending:
        row = pending.pop()
        if row not in rows:
            rows.add(row)
            pending += found.reasons(*row)
    return rows


def test_a_recurrence_ends_before_the_first_frame():
    """Without the input before the first frame, earlier states are not used."""
    found = BreadthFirstExamination(parse_config(RECURRENT), request_of({"input": (0, 1)}, (0, 1)))

    states = []
    while not found.is_finished:
        hop = found.advance()
        states.append([found.info("state", (0, t, 0)).name for t in (0, -1, -2)])
    assert states == [
        ["UNKNOWN", "UNKNOWN", "UNKNOWN"],
        ["UNKNOWN", "UNKNOWN", "UNKNOWN"],
        ["COMPUTABLE", "UNKNOWN", "UNKNOWN"],
        ["COMPUTABLE", "UNKNOWN", "UNKNOWN"],
        ["COMPUTABLE", "NOT_COMPUTABLE", "UNKNOWN"],
        ["COMPUTABLE", "NOT_COMPUTABLE", "WILL_NOT_COMPUTE"],
    ]
    assert hop.left_alone == (("state", (0, -2, 0)),)
    assert found.hops[4].found == (("input", (0, -1, 0)), ("state", (0, -2, 0)))
    assert str(hop) == (
        "hop 6: 0 found, 0 settled; now 4 computable, 3 not computable, 0 unknown, 1 will not be "
        "computed"
    )
    assert found.usable_count("input", (0, 0, 0)) == 1
    assert found.usable_count("state", (0, -2, 0)) == 0
    assert not found.missing_outputs
    assert found.chain("output", (0, 0, 0)) == []
    with pytest.raises(RequestError, match=r"^nothing is left to be examined$"):
        found.advance()


def test_a_later_segment_ends_where_the_earlier_one_has_rows():
    """A recurrence continues from the last state of the first segment, without examining it."""
    nnet = parse_config(RECURRENT)
    previous = build_computation_graph(nnet, request_of({"input": (0, 2)}, (0, 2)))
    second = request_of({"input": (2, 4)}, (2, 4))

    found = BreadthFirstExamination(nnet, second, previous).run()

    assert set(found.rows()) == {
        (name, (0, t, 0)) for name in ("input", "state_input", "state", "output") for t in (2, 3)
    } | {("state", (0, 1, 0))}
    assert set(found.rows(COMPUTABLE)) == set(found.rows())
    assert found.dependencies("state_input", (0, 2, 0)) == [
        ("input", (0, 2, 0)),
        ("state", (0, 1, 0)),
    ]
    assert found.dependencies("state", (0, 1, 0)) == []
    assert found.usable_count("state", (0, 1, 0)) == 1


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        ((1, 3), (2, 3), "rows of 'input' that are given are in an earlier segment already, one "),
        ((2, 3), (1, 3), "rows of 'output' that are requested are in an earlier segment already,"),
    ],
)
def test_what_an_earlier_segment_has_is_not_given_or_wanted(given, wanted, message):
    """The error names the node and a time, like the builder's."""
    nnet = parse_config(RECURRENT)
    previous = build_computation_graph(nnet, request_of({"input": (0, 2)}, (0, 2)))
    second = request_of({"input": given}, wanted)

    with pytest.raises(RequestError, match=f"^{message}.*t = 1$") as found:
        BreadthFirstExamination(nnet, second, previous)
    builder = ComputationGraphBuilder(nnet, second, previous)
    with pytest.raises(RequestError) as expected:
        builder.compute()
    assert str(found.value) == str(expected.value)


def test_earlier_segments_of_another_network():
    """The graph of earlier segments must have the same nodes."""
    nnet = parse_config(RECURRENT)
    request = request_of({"input": (0, 2)}, (0, 2))
    previous = build_computation_graph(nnet, request)
    other = parse_config(RECURRENT.replace("state", "other"))

    with pytest.raises(RequestError, match=r"^the graph of the earlier segments is of another net"):
        BreadthFirstExamination(other, request_of({"input": (2, 4)}, (2, 4)), previous)


def test_reasons():
    """The chain leads to the missing input; optional terms are not a reason."""
    nnet = parse_config(RECURRENT.replace("Sum(input, I", "Sum(Offset(input, 1), I"))
    found = BreadthFirstExamination(nnet, request_of({"input": (0, 1)}, (0, 1))).run()

    assert found.missing_outputs == [("output", (0, 0, 0))]
    assert found.chain("output", (0, 0, 0)) == [
        ("output", (0, 0, 0)),
        ("state", (0, 0, 0)),
        ("state_input", (0, 0, 0)),
        ("input", (0, 1, 0)),
    ]
    assert found.reasons("state_input", (0, 0, 0)) == [("input", (0, 1, 0))]
    assert found.reasons("input", (0, 0, 0)) == []


def test_a_circle_cannot_be_computed():
    """Rows that depend only on themselves stay unknown until the last hop."""
    nnet = parse_config(
        """input-node name=input dim=1
           component name=sum type=NoOpComponent dim=1
           component-node name=a component=sum input=Sum(input, ReplaceIndex(a, t, 0))
           output-node name=output input=Failover(a, input)"""
    )
    found = BreadthFirstExamination(nnet, request_of({"input": (0, 1)}, (0, 1))).run()

    assert found.info("a", (0, 0, 0)) == NOT_COMPUTABLE
    assert found.info("output", (0, 0, 0)) == COMPUTABLE


def test_a_circle_keeps_its_counts():
    """Rows that read each other have a usable count when no output uses them any more, too."""
    nnet = parse_config(
        """input-node name=input dim=1
           component name=sum type=NoOpComponent dim=1
           component-node name=a component=sum input=Failover(a, Const(1.0, 1))
           component-node name=c component=sum input=Offset(input, 1)
           component-node name=d component=sum input=c
           component-node name=b component=sum input=Sum(a, d)
           output-node name=output input=Failover(b, input)"""
    )
    request = request_of({"input": (0, 1)}, (0, 1))
    found = check_against_builder(nnet, request)

    assert found.info("b", (0, 0, 0)) == NOT_COMPUTABLE
    assert found.usable_count("a", (0, 0, 0)) == 1
    assert "a" not in {name for name, _ in named(nnet, build_computation_graph(nnet, request))}


def test_taken_up_again():
    """A row that was left unexamined is examined once a usable row reads it."""
    nnet = parse_config(
        """input-node name=input dim=1
           component name=same type=NoOpComponent dim=1
           component-node name=late component=same input=input
           component-node name=lacking component=same input=Sum(late, Offset(input, 99))
           component-node name=a component=same input=late
           component-node name=b component=same input=a
           output-node name=output input=Sum(b, IfDefined(lacking))"""
    )
    found = BreadthFirstExamination(nnet, request_of({"input": (0, 1)}, (0, 1)))
    states = []
    while not found.is_finished:
        found.advance()
        states.append(found.info("late", (0, 0, 0)))

    assert [state for state, _ in itertools.groupby(states)] == [
        UNKNOWN,
        WILL_NOT_COMPUTE,
        UNKNOWN,
        COMPUTABLE,
    ]
    assert not found.missing_outputs


def test_what_never_ends_stays_unknown():
    """A recurrence without a first value ends the examination after a number of hops."""
    nnet = parse_config(RECURRENT.replace("IfDefined(Offset(state, -1))", "Offset(state, -1)"))
    request = request_of({"input": (0, 1)}, (0, 1))
    assert BreadthFirstExamination(nnet, request).run().is_finished

    endless = parse_config(RECURRENT.replace("Sum(input, IfDefined(Offset(state, -1)))", "state"))
    assert BreadthFirstExamination(endless, request).run().is_finished

    endless = parse_config(
        RECURRENT.replace("Sum(input, IfDefined(Offset(state, -1)))", "Offset(state, -1)")
    )
    found = BreadthFirstExamination(endless, request).run(max_hops=20)
    assert not found.is_finished
    assert found.missing_outputs == [("output", (0, 0, 0))]
    assert found.info("output", (0, 0, 0)) == UNKNOWN


def test_refuses_to_keep_too_many_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read is an object: an examination of more than it can keep is refused."""
    monkeypatch.setattr("nnet3_graph.examination.breadth_first._MOST_READS", 30)
    nnet = parse_config(
        "input-node name=input dim=4\ncomponent name=c type=StatisticsExtractionComponent "
        "input-dim=4 output-period=10\ncomponent-node name=c component=c input=input\n"
        "output-node name=output input=Round(c, 10)\n"
    )
    one, two = (
        BreadthFirstExamination(nnet, request_of({"input": (0, 20)}, wanted))
        for wanted in ((0, 1), (0, 11))
    )

    assert one.run().is_finished
    with pytest.raises(RequestError, match="the rows examined read more than 30 rows"):
        two.run()
