"""Departures from Kaldi's documents on nnet3; docs/departures.md has the reasons."""

import re

import attrs
import numpy as np
import pytest
from nnet3_compiler import commands, compile_computation
from nnet3_compiler.accesses import Variables
from nnet3_descriptors import DescriptorSyntaxError, Nnet, parse_config, parse_descriptor
from nnet3_descriptors.indexes import index_order, make_indexes
from nnet3_graph import (
    ComputationRequest,
    IoSpecification,
    UnboundedComputationError,
    build_computation_graph,
)
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from reference_cases import ROOT

PAGE = ROOT / "docs" / "departures.md"


def network(*lines: str, learning_rate: float = 0.1) -> Nnet:
    """A network with an affine component `affine`, read by further lines."""
    return parse_config(
        "\n".join(
            [
                "input-node name=input dim=4",
                "component name=affine type=AffineComponent input-dim=4 output-dim=4 "
                f"learning-rate={learning_rate}",
                "component-node name=affine component=affine input=input",
                *lines,
            ]
        ),
        rng=np.random.default_rng(0),
    )


def request(
    *,
    given: tuple[int, int] = (0, 6),
    wanted: tuple[int, int] = (0, 6),
    n: object = 1,
    **flags: bool,
) -> ComputationRequest:
    """A request for `output`; flags are those of the output and of the request."""
    has_deriv = flags.pop("has_deriv", False)
    sequences = range(n) if isinstance(n, int) else n
    inputs, outputs = (
        np.concatenate([make_indexes(each, np.arange(*times)) for each in sequences])
        for times in (given, wanted)
    )
    return ComputationRequest(
        inputs=[IoSpecification(name="input", indexes=inputs)],
        outputs=[IoSpecification(name="output", indexes=outputs, has_deriv=has_deriv)],
        **flags,
    )


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
    here = set(
        re.findall(r"^def (test_\w+)", (ROOT / "tests/test_departures.py").read_text(), re.M)
    )
    named = {name for file, name in pointers if file == "tests/test_departures.py"}
    assert here - {"test_every_row_of_the_page_is_shown"} == named


def test_order_of_indexes() -> None:
    """Rows go by t, then x, then n: all sequences of a frame, then those of the next."""
    indexes = make_indexes(n=[0, 0, 1, 1], t=[0, 1, 0, 1])

    assert indexes[index_order(indexes)].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    nnet = network("output-node name=output input=Sum(affine, Offset(affine, 1))")
    graph = build_computation_graph(nnet, request(wanted=(0, 2), given=(0, 3), n=2))
    rows = graph.index_set(nnet.node_index("affine")).indexes
    assert rows[:, 0].tolist() == [0, 1, 0, 1, 0, 1]


def test_dim_range_nodes_in_descriptors() -> None:
    """A dim-range node may stand wherever a component or an input may."""
    nnet = network(
        "dim-range-node name=half input-node=affine dim-offset=2 dim=2",
        "output-node name=output input=Sum(half, Scale(-1, Offset(half, 1)))",
    )

    computation = compile_computation(nnet, request(wanted=(0, 5)))
    outputs = NnetComputer(nnet, computation).forward({"input": np.eye(6, 4, dtype=np.float32)})
    affine = np.eye(6, 4) @ nnet.components[0].linear_params.T
    np.testing.assert_allclose(outputs["output"], -np.diff(affine[:, 2:], axis=0), atol=1e-6)


def test_first_terms_of_sums() -> None:
    """The compiler adds all terms to zeros; the optimizer makes a copy of the first."""
    nnet = network("output-node name=output input=Sum(affine, Offset(affine, 1))")

    compiled = compile_computation(nnet, request(wanted=(0, 5)))
    optimized = optimize(nnet, compiled)

    assert [each for each in kinds(compiled) if each.startswith("Matrix")] == ["MatrixAdd"] * 3
    assert {"MatrixCopy", "CopyRows"}.isdisjoint(kinds(compiled))
    assert {"AllocMatrixUndefined"}.isdisjoint(kinds(compiled))
    assert sorted(each for each in kinds(optimized) if each.startswith("Matrix")) == [
        "MatrixAdd",
        "MatrixCopy",
    ]


def test_weights_in_sums() -> None:
    """A descriptor is a weighted sum: Scale and Const become numbers of commands."""
    nnet = network("output-node name=output input=Sum(Scale(-2, affine), Const(0.5, 4))")

    compiled = compile_computation(nnet, request())

    found = [
        (type(command).__name__, command.alpha)
        for command in compiled.commands
        if isinstance(command, commands.SetConst | commands.MatrixAdd)
    ]
    assert found == [("MatrixAdd", 1.0), ("SetConst", 0.5), ("MatrixAdd", -2.0)]


@pytest.mark.parametrize("n", [(0, 1), (3, 9), (5, 6, 7)])
def test_shortcut_for_any_sequences(n: tuple[int, ...]) -> None:
    """Equal sequences are compiled as one from two on, whatever their n."""
    nnet = network("output-node name=output input=Sum(affine, Offset(affine, 1))")

    compiled = compile_computation(nnet, request(wanted=(0, 5), n=n))

    values = [each for each in compiled.matrix_debug_info if each.node == 2]
    assert [each.sequences.tolist() for each in values] == [list(n)]
    assert [len(each.pattern) for each in values] == [6]


def test_derivatives_of_what_is_trained() -> None:
    """No derivative is computed only for a component with learning rate 0."""
    lines = ["output-node name=output input=affine"]
    wanted = request(has_deriv=True, need_model_derivative=True)

    trained = compile_computation(network(*lines), wanted)
    fixed = compile_computation(network(*lines, learning_rate=0.0), wanted)

    assert kinds(trained).count("Backprop") == 1
    assert not any(each.startswith("Backprop") for each in kinds(fixed))


def test_derivatives_of_outputs_that_have_one() -> None:
    """Nothing is computed backward for an output whose derivative is not given."""
    nnet = network(
        "component name=other type=AffineComponent input-dim=4 output-dim=4",
        "component-node name=other component=other input=affine",
        "output-node name=output input=affine",
        "output-node name=output2 input=other",
    )
    wanted = request(has_deriv=True, need_model_derivative=True)
    (output,) = wanted.outputs
    wanted = attrs.evolve(
        wanted, outputs=[output, attrs.evolve(output, name="output2", has_deriv=False)]
    )

    computation = compile_computation(nnet, wanted)

    backward = [each for each in computation.commands if isinstance(each, commands.Backprop)]
    assert [nnet.component_names[each.component] for each in backward] == ["affine"]


def test_inputs_and_outputs_are_commands() -> None:
    """Commands that take inputs and give outputs say in which matrices these are."""
    nnet = network("output-node name=output input=affine")

    computation = compile_computation(nnet, request())

    taken = [each for each in computation.commands if isinstance(each, commands.AcceptInput)]
    given = [each for each in computation.commands if isinstance(each, commands.ProvideOutput)]
    assert [each.node for each in taken] == [nnet.node_index("input")]
    assert [each.node for each in given] == [nnet.node_index("output")]


def test_variables_have_rows() -> None:
    """A variable is a range of rows and columns: halves of a matrix are two variables."""
    whole, upper, lower = [1, 0, 4, 0, 6], [1, 0, 2, 0, 6], [1, 2, 2, 0, 6]
    submatrices = np.array([[0] * 5, whole, upper, lower], np.int32)

    variables = Variables.of(np.array([[0, 0], [4, 6]], np.int32), submatrices)

    assert np.diff(variables.starts).tolist() == [0, 2]


def test_more_descriptors_have_a_normal_form() -> None:
    """Scale, Offset and Switch may stand over sums and appended parts."""
    text = "Scale(2, Offset(Append(Sum(a, Failover(b, c)), Switch(IfDefined(a), IfDefined(b))), 1))"

    normal = str(parse_descriptor(text))

    assert normal.startswith("Append(Sum(Offset(Scale(2, a), 1), Failover(")
    assert str(parse_descriptor(normal)) == normal
    with pytest.raises(DescriptorSyntaxError, match="must be sums of the same shape"):
        parse_descriptor("Switch(a, Sum(b, c))")


def test_endless_recurrences_are_an_error() -> None:
    """A request whose answer needs infinitely many rows is refused by name, at once."""
    nnet = network(
        "component-node name=state component=affine "
        "input=Sum(Const(1, 4), IfDefined(Offset(state, -1)))",
        "output-node name=output input=Sum(affine, state)",
    )

    with pytest.raises(UnboundedComputationError, match="the recurrence through 'state"):
        build_computation_graph(nnet, request())
