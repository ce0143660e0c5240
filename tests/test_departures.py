"""Departures from Kaldi's documents on nnet3; docs/departures.md has the reasons."""

import re

import attrs
import numpy as np
import pytest
import small_networks
from nnet3_compiler import Compiler, compile_computation, compile_segments
from nnet3_compiler.steps import Graphs, Network, Steps, compute_epochs, compute_phases
from nnet3_computation import ComputationRequest, IoSpecification, commands
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import make_indexes
from nnet3_graph import build_computation_graph
from nnet3_graph.nodes import node_users
from nnet3_optimizer import optimize, optimize_in_steps, pass_summaries
from nnet3_runtime_cuda import NnetComputer
from reference_cases import ROOT
from small_networks import request_for

PAGE = ROOT / "docs" / "departures.md"


def network(*lines: str, learning_rate: float = 0.1) -> Nnet:
    """A network with an affine component `affine`, read by further lines."""
    beginning = (
        "input-node name=input dim=4",
        "component name=affine type=AffineComponent input-dim=4 output-dim=4 "
        f"learning-rate={learning_rate}",
        "component-node name=affine component=affine input=input",
    )
    return small_networks.network("\n".join([*beginning, *lines]))


PLAIN = network("output-node name=output input=affine")
SUM = network("output-node name=output input=Sum(affine, Offset(affine, 1))")
SIX, FIVE = (request_for(range(6), range(count)) for count in (6, 5))
TRAINING = request_for(range(6), range(6), derivs=("output",), need_model_derivative=True)


def kinds(computation: object) -> list[str]:
    """The names of the commands of a computation."""
    return [type(command).__name__ for command in computation.commands]


def test_every_row_of_the_page_is_shown() -> None:
    """Each departure of the page names tests that exist, and each test here is named."""
    text = PAGE.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "::" in line]
    pointers = re.findall(r"`((?:tests|packages)/[\w/.-]+\.py)::(\w+)`", text)

    tables = text.count("| the documents | here | why | shown by |")
    assert len(rows) + tables == sum(line.startswith("| ") for line in text.splitlines())
    for file, name in pointers:
        assert f"def {name}(" in (ROOT / file).read_text(), f"{file}::{name}"
    here = {name for name in globals() if name.startswith("test_")}
    named = {name for file, name in pointers if file == "tests/test_departures.py"}
    assert here - {"test_every_row_of_the_page_is_shown"} == named


def test_first_terms_of_sums() -> None:
    """The compiler adds all terms to zeros; the optimizer makes a copy of the first."""
    compiled = compile_computation(SUM, FIVE)
    optimized = optimize(SUM, compiled)

    assert [each for each in kinds(compiled) if each.startswith("Matrix")] == ["MatrixAdd"] * 3
    assert {"MatrixCopy", "CopyRows"}.isdisjoint(kinds(compiled))
    assert {"AllocMatrixUndefined"}.isdisjoint(kinds(compiled))
    of_matrices = [each for each in kinds(optimized) if each.startswith("Matrix")]
    assert sorted(of_matrices) == ["MatrixAdd", "MatrixCopy"]


def test_weights_in_sums() -> None:
    """A descriptor is a weighted sum: Scale and Const become numbers of commands."""
    nnet = network("output-node name=output input=Sum(Scale(-2, affine), Const(0.5, 4))")

    compiled = compile_computation(nnet, SIX)

    found = [
        (type(command).__name__, command.alpha)
        for command in compiled.commands
        if isinstance(command, commands.SetConst | commands.MatrixAdd)
    ]
    assert found == [("MatrixAdd", 1.0), ("SetConst", 0.5), ("MatrixAdd", -2.0)]


@pytest.mark.parametrize("n", [(0, 1), (3, 9), (5, 6, 7)])
def test_shortcut_for_any_sequences(n: tuple[int, ...]) -> None:
    """Equal sequences are compiled as one from two on, whatever their n."""
    inputs, outputs = (
        IoSpecification(
            name=name, indexes=np.concatenate([make_indexes(each, times) for each in n])
        )
        for name, times in (("input", np.arange(6)), ("output", np.arange(5)))
    )

    compiled = compile_computation(SUM, ComputationRequest(inputs=[inputs], outputs=[outputs]))

    values = [each for each in compiled.matrix_debug_info if each.node == 2]
    assert [each.sequences.tolist() for each in values] == [list(n)]
    assert [len(each.pattern) for each in values] == [6]


def test_derivatives_of_what_is_trained() -> None:
    """No derivative is computed only for a component with learning rate 0."""
    fixed = network("output-node name=output input=affine", learning_rate=0.0)
    of_trained, of_fixed = (kinds(compile_computation(each, TRAINING)) for each in (PLAIN, fixed))

    assert of_trained.count("Backprop") == 1
    assert not any(each.startswith("Backprop") for each in of_fixed)


def test_derivatives_of_outputs_that_have_one() -> None:
    """Nothing is computed backward for an output whose derivative is not given."""
    nnet = network(
        "component name=other type=AffineComponent input-dim=4 output-dim=4",
        "component-node name=other component=other input=affine",
        "output-node name=output input=affine",
        "output-node name=output2 input=other",
    )
    (output,) = TRAINING.outputs
    other = attrs.evolve(output, name="output2", has_deriv=False)

    computation = compile_computation(nnet, attrs.evolve(TRAINING, outputs=[output, other]))

    backward = [each for each in computation.commands if isinstance(each, commands.Backprop)]
    assert [nnet.component_names[each.component] for each in backward] == ["affine"]


def test_indexes_and_cindexes_are_arrays() -> None:
    """Rows of a graph are arrays, and so are the rows that each of them reads."""
    graph = build_computation_graph(SUM, FIVE)

    rows = graph.index_set(SUM.node_index("affine")).indexes
    assert (rows.dtype, rows.shape) == (np.int32, (6, 3))
    assert (graph.cindexes.dtype, graph.cindexes.shape) == (np.int32, (graph.num_cindexes, 4))
    last = slice(*graph.dependency_splits[-2:])
    assert graph.cindexes[graph.dependencies[last]].tolist() == [[2, 0, 4, 0], [2, 0, 5, 0]]


def test_functions_return_values() -> None:
    """The optimizer returns another computation, and the graph cannot be changed."""
    compiled = compile_computation(SUM, FIVE)
    before = compiled.to_bytes()

    assert optimize(SUM, compiled) != compiled
    assert compiled.to_bytes() == before
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        build_computation_graph(SUM, FIVE).is_pruned = False
    with pytest.raises(ValueError, match="read-only"):
        compiled.command_table[0, 0] = 0


def test_components_have_no_arithmetic() -> None:
    """A component has settings and arrays; a computer gives the gradient as a network."""
    computer = NnetComputer(PLAIN, compile_computation(PLAIN, TRAINING))
    outputs = computer.forward({"input": np.ones((6, 4))})
    computer.backward({"output": np.ones_like(outputs["output"])})

    assert not [name for name in dir(PLAIN.components[0]) if re.match("propagate|backprop$", name)]
    gradient = computer.gradient.component("affine")
    np.testing.assert_array_equal(gradient.bias_params, np.full(4, 6.0))


def test_precomputed_indexes_are_values() -> None:
    """A component that is not simple has indexes in the computation, which its commands name."""
    nnet = network(
        "component name=tdnn type=TdnnComponent input-dim=4 output-dim=4 time-offsets=-1,0",
        "component-node name=tdnn component=tdnn input=affine",
        "output-node name=output input=tdnn",
    )

    compiled = compile_computation(nnet, request_for(range(6), range(1, 6)))

    calls = [each for each in compiled.commands if isinstance(each, commands.Propagate)]
    assert [each.precomputed_indexes for each in calls] == [0, 1]
    assert compiled.precomputed_indexes[0] is None
    assert type(compiled).from_bytes(compiled.to_bytes()) == compiled


def test_statistics_have_input_and_memo() -> None:
    """Statistics are stored from the same matrices and memo that the backward pass reads."""
    nnet = network(
        "component name=norm type=BatchNormComponent dim=4",
        "component-node name=norm component=norm input=affine",
        "output-node name=output input=norm",
    )
    compiled = compile_computation(nnet, attrs.evolve(TRAINING, store_component_stats=True))

    (stored,) = (c for c in compiled.commands if isinstance(c, commands.StoreStats))
    (made,) = (c for c in compiled.commands if isinstance(c, commands.Propagate) and c.memo)
    assert (stored.memo, stored.output) == (made.memo, made.output)
    assert "input" in {operand.name for operand in commands.StoreStats.OPERANDS}


def test_a_marker_ends_each_segment() -> None:
    """Three requests that are compiled together have three markers, the last of them at the end."""
    nnet = network("output-node name=output input=Sum(affine, IfDefined(Offset(affine, -1)))")
    chunks = [request_for(range(t, t + 2), range(t, t + 2)) for t in (0, 2, 4)]

    computation = compile_segments(nnet, chunks)

    assert kinds(computation).count("NoOperationMarker") == 3
    assert computation.forward_end == computation.segment_ends[2]


def test_outputs_come_when_their_inputs_are_there() -> None:
    """The step of an output that reads the input comes before those of the other nodes."""
    nnet = network("output-node name=early input=input", "output-node name=output input=affine")
    (late,) = SIX.outputs
    both = attrs.evolve(SIX, outputs=[late, attrs.evolve(late, name="early")])

    compiled = compile_computation(nnet, both)

    steps = [name for name, _ in compiled.steps_by_node(nnet)]
    assert steps == ["input", "early", "affine_input", "affine", "output"]
    assert kinds(compiled)[-6:-3] == ["ProvideOutput", "ProvideOutput", "NoOperationMarker"]


def test_stages_of_the_compiler_can_be_called() -> None:
    """The graph of nodes, epochs, phases and steps of a recurrence have public names."""
    nnet = network(
        "component-node name=state component=affine "
        "input=Sum(affine, IfDefined(Offset(state, -1)))",
        "output-node name=output input=state",
    )
    wanted = request_for(range(6), range(3))
    graph = build_computation_graph(nnet, wanted)

    assert node_users(nnet) == [[1], [2], [3], [4], [3, 5], []]
    epochs = compute_epochs(nnet)
    assert epochs.of_node.tolist() == [0, 1, 2, 3, 3, 4]
    phases = compute_phases(Network.of(nnet), epochs, Graphs(segments=[graph]))
    state = graph.node_range(nnet.node_index("state"))
    assert phases.level[state].tolist() == [1, 3, 5]
    steps = Compiler(nnet, wanted, graph).make_steps()
    assert isinstance(steps, Steps)
    assert steps.node.tolist() == [0, 1, 2, 3, 4, 3, 4, 3, 4, 5]


def test_debug_info_tells_what_step_info_would() -> None:
    """Each matrix of a computation is that of a step: the debug information has node and rows."""
    info = compile_computation(PLAIN, TRAINING).matrix_debug_info

    known = [(PLAIN.node_names[each.node], each.is_deriv, each.num_rows) for each in info[1:]]
    assert sorted(known) == [
        ("affine", False, 6),
        ("affine", True, 6),
        ("affine_input", False, 6),
        ("input", False, 6),
        ("output", False, 6),
        ("output", True, 6),
    ]
    assert info[1].cindexes[:2].tolist() == [[info[1].node, 0, 0, 0], [info[1].node, 0, 1, 0]]


def test_each_pass_runs_once() -> None:
    """The passes have an order, in which merging, zeroing and sizing follow each other."""
    names = list(pass_summaries())

    assert len(names) == len(set(names))
    first = names.index("merge_variables")
    assert names[first + 1 : first + 3] == ["initialize_undefined", "move_sizing_commands"]
    compiled = compile_computation(SUM, FIVE)
    ran = [name for name, _ in optimize_in_steps(SUM, compiled)]
    assert ran == [name for name in names if name in ran]
