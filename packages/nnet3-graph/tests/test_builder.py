"""Building graphs: names in requests, given states, and errors."""

import pickle

import numpy as np
import pytest
from graph_strategies import request_of
from nnet3_computation import ComputationRequest, IoSpecification, RequestError
from nnet3_graph import ComputationGraphBuilder, NotComputableError, build_computation_graph
from small_networks import identity, network, request_for, stacked

TDNN = """
input-node name=input dim=1
input-node name=ivector dim=1
component name=tdnn type=AffineComponent input-dim=4 output-dim=1
component-node name=tdnn component=tdnn input=Append(Offset(input, -2), input, Offset(input, 2), ReplaceIndex(ivector, t, 0))
dim-range-node name=part input-node=tdnn dim-offset=0 dim=1
output-node name=output input=part
"""  # noqa: E501

RNN = stacked(
    1,
    "affine Affine input-dim=2 output-dim=1",
    "tanh Tanh dim=1",
    splice="Append(input, {recurrent})",
)


def rnn(recurrent):
    """A recurrent network; `recurrent` is the descriptor of the recurrent input."""
    return network(RNN.format(recurrent=recurrent))


def request(inputs, outputs):
    """A request for ranges (first t, t after the last, number of sequences) of nodes."""
    return ComputationRequest(
        inputs=[IoSpecification.from_range(name, *rows) for name, rows in inputs.items()],
        outputs=[IoSpecification.from_range(name, *rows) for name, rows in outputs.items()],
    )


def one_row(t, x):
    """A request that gives the input and asks for the output at a single (t, x)."""
    return request_of([(0, t, x)], [(0, t, x)])


def times(graph, nnet, node):
    """The values of t of a node in a graph."""
    return graph.index_set(nnet.node_index(node)).indexes[:, 1].tolist()


class TestRequests:
    """Requests that do not fit the network."""

    @pytest.mark.parametrize("t", [2**31 - 1, 1 - 2**31])
    @pytest.mark.parametrize(
        "term",
        [
            "IfDefined(Offset(input, {}2))",
            "IfDefined(Switch(Offset(input, {}2), Offset(input, {}3)))",
            "Failover(Offset(input, {}2, {}2147483647), input)",
        ],
    )
    def test_terms_that_are_not_there_beyond_32_bits(self, t, term):
        """Optional terms at impossible times count as missing."""
        term = term.replace("{}", "" if t > 0 else "-")
        nnet = network(
            f"input-node name=input dim=4\noutput-node name=output input=Sum(input, {term})\n"
        )

        graph = build_computation_graph(nnet, one_row(t, 0))

        assert graph.counts_by_node() == {"input": 1, "output": 1}
        assert graph.dependencies.tolist() == [0]

    def test_statistics_of_a_period_that_ends_beyond_32_bits(self):
        """Impossible times are frames that do not exist, and are left out of the sum."""
        nnet = network(stacked(4, "c StatisticsExtraction input-dim=4 output-period=10"))
        graph = build_computation_graph(nnet, one_row(2**31 - 1, 0))

        splits, inputs = graph.component_inputs(nnet.node_index("c"))

        assert splits.tolist() == [0, 1]
        assert graph.cindexes[inputs].tolist() == [[1, 0, 2**31 - 1, 0]]


class TestGraph:
    """The contents of graphs."""

    def test_counts(self):
        """Each node has the needed rows; inputs keep all given rows."""
        nnet = network(TDNN)

        graph = build_computation_graph(
            nnet, request({"input": (-2, 10, 2), "ivector": (0, 1, 2)}, {"output": (0, 3, 2)})
        )

        expected = {"input": 24, "ivector": 2, "tdnn_input": 6, "tdnn": 6, "part": 6, "output": 6}
        assert graph.counts_by_node() == graph.counts_by_node(nnet) == expected

    def test_equal_rows_are_one_object(self):
        """Nodes with the same rows share their index set, so that work on it can be reused."""
        nnet = network(TDNN)
        graph = build_computation_graph(
            nnet, request({"input": (-2, 5), "ivector": (0, 1)}, {"output": (0, 3)})
        )

        sets = {name: graph.index_set(nnet.node_index(name)) for name in nnet.node_names}
        assert sets["tdnn"] is sets["tdnn_input"] is sets["part"] is sets["output"]
        assert sets["tdnn"] is not sets["input"]

    def test_sequences_with_equal_rows_are_one_pattern(self):
        """The search does not depend on the number of sequences; the graph has the rows of all."""
        nnet = network(TDNN)

        graph = build_computation_graph(
            nnet,
            request({"input": (-2, 5, 1000), "ivector": (0, 1, 1000)}, {"output": (0, 3, 1000)}),
        )

        assert graph.grid.patterns.num_patterns == 1
        assert graph.index_set(nnet.node_index("tdnn")).indexes.shape == (3000, 3)

    def test_what_is_not_there_has_no_id(self):
        """No cindex of another node is taken for one of a node that does not exist."""
        graph = build_computation_graph(
            network(TDNN), request({"input": (-2, 5), "ivector": (0, 1)}, {"output": (0, 3)})
        )
        rows = np.array([[0, 0, 0]])

        wanted = np.array([[-1, 0, 0, 0], [0, 0, 0, 0], [99, 0, 0, 0], [0, 0, 2**32, 0]])
        assert graph.find(wanted).tolist() == [-1, graph.cindex_ids(0, rows)[0], -1, -1]
        for ask in (graph.node_range, lambda node: graph.cindex_ids(node, rows)):
            for node in (-1, 99):
                with pytest.raises(
                    RequestError, match=f"expected a node from 0 to .*, found {node}"
                ):
                    ask(node)
        with pytest.raises(RequestError, match=r"expected integers of the shape \(rows, 3\)"):
            graph.cindex_ids(0, rows + 0.5)
        with pytest.raises(RequestError, match=r"expected integers of the shape \(rows, 4\)"):
            graph.find(rows)


class TestRecurrence:
    """Networks that read their own past."""

    def test_given_state_is_used_and_not_followed(self):
        """A given state replaces all earlier frames."""
        nnet = rnn("Offset(tanh, -1)")

        graph = build_computation_graph(
            nnet, request({"input": (0, 6), "tanh": (2, 3)}, {"output": (3, 6)})
        )

        assert times(graph, nnet, "affine") == [3, 4, 5]
        assert times(graph, nnet, "tanh") == [2, 3, 4, 5]
        tanh = nnet.node_index("tanh")
        assert graph.is_given(tanh).tolist() == [True, False, False, False]
        splits, _ = graph.dependencies_of(tanh)
        assert np.diff(splits).tolist() == [0, 1, 1, 1]


class TestErrors:
    """Errors for outputs that cannot be computed."""

    def test_missing_frames(self):
        """The error has rows, chain, missing frames and context as data."""
        with pytest.raises(NotComputableError) as caught:
            build_computation_graph(
                network(TDNN),
                request({"input": (0, 9, 2), "ivector": (0, 1, 2)}, {"output": (0, 9, 2)}),
            )

        error = caught.value
        assert error.missing_outputs["output"][:, 1].tolist() == [0, 0, 1, 1, 7, 7, 8, 8]
        assert error.chain[-1] == ("input", (0, -2, 0))
        assert error.context == (2, 2)
        (missing,) = error.missing_inputs
        assert (missing.node, missing.ranges) == ("input", ((-2, -1), (9, 10)))

    def test_passes_between_processes(self):
        """An error from a worker process keeps its message and its data."""
        with pytest.raises(NotComputableError) as caught:
            build_computation_graph(
                network(TDNN), request({"input": (0, 9), "ivector": (0, 1)}, {"output": (0, 9)})
            )

        arrived = pickle.loads(pickle.dumps(caught.value))  # noqa: S301, bytes of our own

        assert str(arrived) == str(caught.value)
        assert arrived.missing_inputs == caught.value.missing_inputs
        assert arrived.context == (2, 2)


class TestSegments:
    """Looped computations: each segment can read rows of the earlier ones."""

    def test_second_segment_reads_the_first(self):
        """The state comes from the previous segment, and is not computed again."""
        nnet = rnn("IfDefined(Offset(tanh, -1))")
        first = build_computation_graph(nnet, request({"input": (0, 3, 2)}, {"output": (0, 3, 2)}))

        second = build_computation_graph(
            nnet, request({"input": (3, 6, 2)}, {"output": (3, 6, 2)}), first
        )

        assert times(second, nnet, "tanh") == [3, 3, 4, 4, 5, 5]
        assert second.segment_ends == (first.num_cindexes, first.num_cindexes + second.num_cindexes)
        tanh, before = nnet.node_index("tanh"), np.array([[1, 2, 0]], dtype=np.int32)
        assert second.cindex_ids(tanh, before) == first.cindex_ids(tanh, before)
        assert first.cindex_ids(tanh, before)[0] in second.dependencies


def test_short_repr() -> None:
    """The reprs of a graph and of a set of indexes show their sizes."""
    graph = build_computation_graph(identity(2), request_for(range(4), range(1, 3), 2))

    assert repr(graph) == "<ComputationGraph: 12 cindexes of 2 nodes>"
    assert repr(graph.index_set(1)) == "<IndexSet: 4 indexes, t 1 to 2>"


def test_graphs_compare_by_content():
    """Graphs of equal networks and requests are equal; other rows, a state or a past are not."""
    wanted = request({"input": (0, 4, 1)}, {"output": (0, 4, 1)})
    later = request({"input": (4, 8, 1)}, {"output": (4, 8, 1)})
    nnet = rnn("IfDefined(Offset(tanh, -1))")
    graph = build_computation_graph(nnet, wanted)
    same = build_computation_graph(rnn("IfDefined(Offset(tanh, -1))"), wanted)
    builder = ComputationGraphBuilder(nnet, wanted)
    builder.compute()

    assert graph == same
    assert hash(graph) == hash(same)
    following, alike = (build_computation_graph(nnet, later, each) for each in (graph, same))
    assert following == alike
    others = [
        builder.graph,
        following,
        build_computation_graph(nnet, later),
        build_computation_graph(rnn("IfDefined(Offset(tanh, -2))"), wanted),
        build_computation_graph(
            nnet, request({"input": (0, 4, 1), "tanh": (0, 1, 1)}, {"output": (0, 4, 1)})
        ),
    ]
    assert graph not in others
