"""Exported models: names, contents and metadata; errors."""

import json
from collections import Counter

import attrs
import numpy as np
import pytest
from exported_programs import defined, request, session_of
from nnet3_compiler import CompilerOptions, compile_computation, compile_looped, looped_requests
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, component_class, component_types, parse_config, set_test_mode
from nnet3_runtime_onnx import ExportError, OnnxComputer, to_onnx
from nnet3_runtime_onnx.components import translated_types
from onnx import shape_inference
from small_networks import NAMED_LIKE_A_PART, RECURRENT, SPLICED, network, request_for, stacked

MASKED = stacked(
    4,
    "first Dropout dim=4 dropout-proportion=0.5",
    "unused Dropout dim=4 dropout-proportion=0.5",
    "second SpecAugmentTimeMask dim=4 zeroed-proportion=0.2 input=first",
)


def test_names() -> None:
    """Inputs and outputs have the names of nodes; other names begin with their component."""
    nnet = network(SPLICED)

    model = to_onnx(nnet, compile_computation(nnet, request(5)))

    assert [value.name for value in model.graph.input] == ["input"]
    assert [value.name for value in model.graph.output] == ["output"]
    names = [tensor.name for tensor in model.graph.initializer]
    assert "affine.linear_params.transposed" in names
    assert "affine.bias_params" in names
    assert [node.name.partition("/")[0] for node in model.graph.node if "MatMul" in node.name] == [
        "affine"
    ]


def test_what_a_recurrence_knows_before_is_multiplied_once() -> None:
    """Rows of an earlier layer take one product for all steps; a step multiplies only its state."""
    both = "both Affine input-dim=11 output-dim=5 input=Append(before, IfDefined(Offset(both, -1)))"
    nnet = network(stacked(4, "before Affine input-dim=4 output-dim=6", both))
    computation = compile_computation(nnet, request(12, left=0))

    model = to_onnx(nnet, computation)

    shapes = {value.name: value for value in shape_inference.infer_shapes(model).graph.value_info}
    rows = [
        [axis.dim_value for axis in shapes[node.input[0]].type.tensor_type.shape.dim]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.name.startswith("both")
    ]
    assert sorted(rows) == [[1, 5]] * 11 + [[12, 6]]
    constants = [
        tensor.name for tensor in model.graph.initializer if tensor.name.startswith("both")
    ]
    assert sorted(constants) == [
        "both.bias_params",
        "both.linear_params.transposed.0:6",
        "both.linear_params.transposed.6:11",
    ]
    given = {"input": np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)}
    [actual] = session_of(model).run(["output"], given)
    expected = defined(nnet, computation, given)["output"]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


CELLS = """
dim-range-node name=c input-node=both dim-offset=0 dim=2
dim-range-node name=m input-node=both dim-offset=2 dim=2
""" + stacked(
    8,
    "lstm LstmNonlinearity cell-dim=2 input=Append(input, IfDefined(Offset(c, -1)))",
    "both BackpropTruncation dim=4 scale=1.0",
    "affine Affine input-dim=2 output-dim=3 input=m",
)
STATISTICS = stacked(
    8,
    "statistics StatisticsExtraction input-dim=8 include-variance=true",
    "pooling StatisticsPooling input-dim=17 output-stddevs=true left-context=0 right-context=5",
)


@pytest.mark.parametrize(
    ("config", "frames"), [(CELLS, 5), (STATISTICS, 1)], ids=["cells", "statistics"]
)
def test_columns_are_not_joined_to_be_cut_again(config: str, frames: int) -> None:
    """Cells and outputs, or sums and sums of squares, stay separate tensors until all are read."""
    nnet = network(config)

    model = to_onnx(nnet, compile_computation(nnet, request_for(range(6), range(frames))))

    joined = [
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Concat" and node.attribute[0].i == -1
    ]
    assert joined in ([], ["output"])


def test_rows_that_nothing_changes_are_joined_once() -> None:
    """Two readers of different rows of a NoOpComponent share the joined rows."""
    nnet = network(
        stacked(
            2,
            "even Sigmoid dim=2",
            "odd Tanh dim=2 input=input",
            "same NoOp dim=2 input=Switch(even, odd)",
            "first Affine input-dim=2 output-dim=3",
            "second Affine input-dim=2 output-dim=3 input=Offset(same, -1)",
            "sum NoOp dim=3 input=Sum(first, second)",
        )
    )

    model = to_onnx(nnet, compile_computation(nnet, request(6)))

    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["Concat"] == operators["Gather"] == 1


CONVOLUTIONS = """
input-node name=input dim=4
component name=first type=TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=3 \
  height-in=4 height-out=4 height-offsets=-1,0,1 time-offsets=-1,0,1 required-time-offsets=0
component name=relu type=RectifiedLinearComponent dim=12
component name=norm type=BatchNormComponent dim=12 block-dim=3 test-mode=true
component name=second type=TimeHeightConvolutionComponent num-filters-in=3 num-filters-out=3 \
  height-in=4 height-out=4 height-offsets=-1,0,1 time-offsets=-1,0,1 required-time-offsets=0
component-node name=first component=first input=input
component-node name=relu component=relu input=first
component-node name=norm component=norm input=relu
component-node name=second component=second input=norm
component-node name=relu2 component=relu input=Sum(second, Scale(0.5, norm))
component-node name=norm2 component=norm input=relu2
output-node name=output input=norm2
"""


def test_convolutions_in_a_row_are_images() -> None:
    """Axes are exchanged only before the first and after the last convolution; no node pads."""
    nnet = network(CONVOLUTIONS)
    norm = attrs.evolve(
        nnet.component("norm"),
        count=5.0,
        stats_mean=np.float32([0.1, 0.2, 0.3]),
        stats_var=np.float32([1.0, 2.0, 3.0]),
    )
    nnet = nnet.with_components({"norm": norm})
    rows = np.random.default_rng(2).standard_normal((2, 6, 4), dtype=np.float32)

    computation = compile_computation(nnet, request(6, left=0))

    model = to_onnx(nnet, computation, sequences="n")

    counts = Counter(node.op_type for node in model.graph.node)
    assert counts["Conv"] == counts["BatchNormalization"] == counts["Transpose"] == 2
    assert not counts["Concat"]

    [found] = session_of(model).run(["output"], {"input": rows})
    for each, output in zip(rows, found, strict=True):
        expected = defined(nnet, computation, {"input": each})["output"]
        np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)


def test_rows_of_a_convolution_beside_its_image() -> None:
    """Rows of an image can be read beside another convolution that reads the image."""
    nnet = network(CONVOLUTIONS + "output-node name=rows input=Offset(relu, 1)\n")
    nnet = set_test_mode(nnet)
    wanted = ComputationRequest(
        inputs=[IoSpecification.from_range("input", 0, 6)],
        outputs=[IoSpecification.from_range(name, 1, 4) for name in ("output", "rows")],
    )
    computation = compile_computation(nnet, wanted)
    given = {"input": np.random.default_rng(3).standard_normal((6, 4), dtype=np.float32)}

    [found] = session_of(to_onnx(nnet, computation)).run(["rows"], given)

    expected = defined(nnet, computation, given)["rows"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_filters_of_a_shared_convolution() -> None:
    """Nodes that share a convolution, with their times in another order, have own filters."""
    convolution = (
        "c TimeHeightConvolution num-filters-in=1 num-filters-out=1 height-in=2 height-out=2 "
        "height-offsets=0 time-offsets=0,2,5"
    )
    nnet = network(
        "component-node name=again component=c input=tanh\noutput-node name=other input=again\n"
        + stacked(2, "tanh Tanh dim=2", f"{convolution} input=input")
    )
    given = {"input": np.random.default_rng(2).standard_normal((60, 2), dtype=np.float32)}
    wanted = ComputationRequest(
        inputs=[IoSpecification.from_range("input", 0, 30, 2)],
        outputs=[
            IoSpecification.from_range("output", 0, 17, 2, t_step=2),
            IoSpecification.from_range("other", 0, 17, 2, t_step=4),
        ],
    )
    computation = compile_computation(nnet, wanted)

    found = OnnxComputer(nnet, computation).forward(given)

    for name, expected in defined(nnet, computation, given).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-5)


def test_a_component_with_the_name_of_a_part() -> None:
    """A part of a composite component and a component of the name "c.0" have own parameters."""
    nnet = network(NAMED_LIKE_A_PART)
    computation = compile_computation(nnet, request(3, left=0))
    given = {"input": np.random.default_rng(2).standard_normal((3, 2), dtype=np.float32)}

    found = OnnxComputer(nnet, computation).forward(given)["output"]

    np.testing.assert_allclose(found, defined(nnet, computation, given)["output"], atol=1e-5)


def test_parameters_are_there_once() -> None:
    """A recurrent component runs for each frame, and its parameters are stored once."""
    nnet = network(RECURRENT)

    model = to_onnx(nnet, compile_computation(nnet, request(6, left=0)))

    assert sum(node.op_type == "MatMul" for node in model.graph.node) == 6
    sizes = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith("affine")]
    assert sorted(sizes) == ["affine.bias_params", "affine.linear_params.transposed"]


def test_windows_are_there_once() -> None:
    """The frames of windows that move are stored once for counts, sums and sums of squares."""
    nnet = network(
        stacked(
            4,
            "sums StatisticsExtraction input-dim=4",
            "pool StatisticsPooling input-dim=9 left-context=2 right-context=2 output-stddevs=true",
        )
    )

    model = to_onnx(nnet, compile_computation(nnet, request_for(range(-2, 10), range(8))))

    assert sum("ranges" in tensor.name for tensor in model.graph.initializer) == 1


def test_metadata() -> None:
    """A model's metadata describe its inputs and outputs, and the context to add."""
    nnet = network(SPLICED)

    model = to_onnx(nnet, compile_computation(nnet, request(5)), metadata={"left_context": "1"})

    properties = {each.key: each.value for each in model.metadata_props}
    assert json.loads(properties["nnet3.inputs"]) == {"input": {"rows": 6, "dim": 4}}
    assert json.loads(properties["nnet3.outputs"]) == {
        "output": {"rows": 5, "dim": 3, "values": "log-probabilities"}
    }
    assert properties["left_context"] == "1"


@pytest.mark.parametrize(
    ("leading", "shape"), [(None, ["6", "4"]), (2, ["2", "6", "4"]), ("batch", ["batch", "6", "4"])]
)
def test_shapes(leading: int | str | None, shape: list[str]) -> None:
    """Values have rows and columns, after the axis of sequences if there is one."""
    nnet = network(SPLICED)

    model = to_onnx(nnet, compile_computation(nnet, request(5)), sequences=leading)

    sizes = model.graph.input[0].type.tensor_type.shape.dim
    assert [size.dim_param or str(size.dim_value) for size in sizes] == shape


def test_sequences_are_computed_alike() -> None:
    """With a leading axis, two sequences have the outputs of a computation for two sequences."""
    nnet = network(RECURRENT)
    rows = np.random.default_rng(1).standard_normal((2, 6, 4), dtype=np.float32)
    both = OnnxComputer(nnet, compile_computation(nnet, request(6, left=0, sequences=2)))
    expected = both.forward({"input": rows.reshape(12, 4)})["output"].reshape(2, 6, 3)
    model = to_onnx(nnet, compile_computation(nnet, request(6, left=0)), sequences="n")

    [found] = session_of(model).run(["output"], {"input": rows})

    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_all_types_are_there() -> None:
    """Each component type has a translation."""
    assert translated_types() == {component_class(name) for name in component_types()}


def test_what_is_refused() -> None:
    """Components that draw random numbers are refused by name if they are used."""
    nnet = network(MASKED)

    with pytest.raises(ExportError) as raised:
        to_onnx(nnet, compile_computation(nnet, request(3)))

    message = str(raised.value)
    assert "'first' of type DropoutComponent draws random numbers: set test mode" in message
    assert "'second' of type SpecAugmentTimeMaskComponent" in message
    assert "unused" not in message


def test_test_mode_is_not_refused() -> None:
    """Dropout in test mode is exported: it scales."""
    nnet = network(MASKED)
    nnet = set_test_mode(nnet)
    rows = np.ones((4, 4), np.float32)

    outputs = OnnxComputer(nnet, compile_computation(nnet, request(3))).forward({"input": rows})

    np.testing.assert_allclose(outputs["output"], 0.5 * rows[:3])


def test_nodes_with_the_names_of_parameters() -> None:
    """An output may have the name of a parameter; the name of the constant gets a number."""
    nnet = network(
        """
        input-node name=affine.linear_params.transposed dim=4
        component name=affine type=AffineComponent input-dim=4 output-dim=3
        component-node name=affine component=affine input=affine.linear_params.transposed
        output-node name=affine.bias_params input=affine
        """
    )
    given, wanted = "affine.linear_params.transposed", "affine.bias_params"
    request = ComputationRequest(
        inputs=[IoSpecification.from_range(given, 0, 5)],
        outputs=[IoSpecification.from_range(wanted, 0, 5)],
    )
    computation = compile_computation(nnet, request)
    values = {given: np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)}

    found = OnnxComputer(nnet, computation).forward(values)[wanted]

    expected = defined(nnet, computation, values)[wanted]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["state.a", "next_state.a"])
def test_nodes_with_the_names_of_state(name: str) -> None:
    """Inputs and outputs with such names would be taken for state."""
    for given, wanted in ((name, "output"), ("input", name)):
        nnet = parse_config(
            f"input-node name={given} dim=2\noutput-node name={wanted} input={given}"
        )
        request = ComputationRequest(
            inputs=[IoSpecification.from_range(given, 0, 5)],
            outputs=[IoSpecification.from_range(wanted, 0, 5)],
        )
        with pytest.raises(ExportError, match=f"node '{name}': the names of inputs and outputs"):
            to_onnx(nnet, compile_computation(nnet, request))


def test_one_row_for_many() -> None:
    """An input whose rows are all the same has one row in the model, for each sequence."""
    nnet = parse_config(
        """
        input-node name=input dim=2
        input-node name=ivector dim=2
        output-node name=output input=Append(input, Sum(ivector, Scale(0.5, Offset(ivector, 1))))
        """
    )
    request = ComputationRequest(
        inputs=[
            IoSpecification.from_range("input", 0, 3),
            IoSpecification.from_range("ivector", 0, 4),
        ],
        outputs=[IoSpecification.from_range("output", 0, 3)],
    )
    computation = compile_computation(nnet, request)
    rows, ivectors = np.ones((2, 3, 2), np.float32), np.float32([[[1, 2]], [[3, 4]]])

    model = to_onnx(nnet, computation, sequences="n", one_row=["ivector"])

    [found] = session_of(model).run(["output"], {"input": rows, "ivector": ivectors})
    assert found.tolist() == [[[1, 1, 1.5, 3]] * 3, [[1, 1, 4.5, 6]] * 3]
    [described] = [each.value for each in model.metadata_props if each.key == "nnet3.inputs"]
    assert json.loads(described)["ivector"] == {"rows": 1, "dim": 2}
    with pytest.raises(ExportError, match=r"'one_row' must name input nodes; there is no 'a'"):
        to_onnx(nnet, computation, one_row=["a"])


def loop(nnet: Nnet) -> tuple[object, list[int]]:
    """A looped computation in chunks of three frames, and the input frames of each chunk."""
    requests = looped_requests(nnet, 3)
    computation = compile_looped(nnet, requests, CompilerOptions(output_debug_info=True))
    return computation, [len(each.inputs[0].indexes) for each in requests]


@pytest.mark.parametrize("leading", [1, "sequences"])
@pytest.mark.parametrize("config", [RECURRENT, SPLICED])
def test_a_loop_in_parts(config: str, leading: int | str) -> None:
    """Start and rounds, with the state handed on, give the computer's outputs chunk by chunk."""
    nnet = network(config)
    computation, frames = loop(nnet)
    rows = np.random.default_rng(1).standard_normal((60, 4), dtype=np.float32)
    start, again = (
        session_of(to_onnx(nnet, computation, part=part, sequences=leading))
        for part in ("start", "round")
    )

    def run(session, begin, state):
        shapes = {each.name: each.shape for each in session.get_inputs()}
        end = begin + shapes["input"][1]
        names = [each.name for each in session.get_outputs()]
        values = session.run(names, {"input": rows[None, begin:end], **state})
        found = dict(zip(names, values, strict=True))
        output = found.pop("output")[0]
        prefix = "next_state."
        return end, output, {f"state.{k.removeprefix(prefix)}": v for k, v in found.items()}

    begin, output, state = run(start, 0, {})
    outputs = [output]
    for _ in range(3):
        begin, output, state = run(again, begin, state)
        outputs.append(output)

    computer = OnnxComputer(nnet, computation)
    expected, begin, number = [], 0, 0
    while sum(map(len, expected)) < sum(map(len, outputs)):
        end = begin + frames[min(number, 2)]
        expected.append(computer.forward({"input": rows[begin:end]})["output"])
        begin, number = end, number + 1
    np.testing.assert_allclose(np.concatenate(outputs), np.concatenate(expected), atol=1e-6)
    [(name, rows_kept)] = state.items()
    assert name.startswith("state.tanh." if config == RECURRENT else "state.input.")
    assert rows_kept.shape == ((1, 1, 3) if config == RECURRENT else (1, 1, 4))
