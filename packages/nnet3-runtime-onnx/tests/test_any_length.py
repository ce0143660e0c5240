"""Models of any number of frames, of whole utterances: their outputs, and what is refused."""

import numpy as np
import onnx
import pytest
from exported_programs import session_of
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, set_test_mode
from nnet3_runtime_onnx import ExportError, OnnxComputer, to_onnx_of_any_length
from small_networks import SPLICED, network, stacked

LENGTHS = (1, 2, 3, 7, 40)
"""Frames beyond the fewest that a model takes, less one."""

POOLED = """
input-node name=input dim=4
input-node name=ivector dim=2
component name=tdnn type=TdnnComponent input-dim=4 output-dim=6 time-offsets=-2,0,1
component-node name=tdnn component=tdnn input=input
component name=conv type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=2 \
height-in=3 height-out=3 height-offsets=-1,0,1 time-offsets=-2,0,1 required-time-offsets=0
component-node name=conv component=conv input=tdnn
component name=affine type=AffineComponent input-dim=15 output-dim=5
component-node name=affine component=affine input=Append(IfDefined(Offset(tdnn, -3)), \
Sum(conv, Scale(0.5, tdnn)), ReplaceIndex(ivector, t, 0), Const(0.3, 1))
dim-range-node name=part input-node=affine dim-offset=1 dim=3
component name=sums type=StatisticsExtractionComponent input-dim=3 input-period=2 output-period=4
component-node name=sums component=sums input=part
component name=pool type=StatisticsPoolingComponent input-dim=7 input-period=4 left-context=0 \
right-context=32 num-log-count-features=1 output-stddevs=true
component-node name=pool component=pool input=sums
component name=after type=AffineComponent input-dim=7 output-dim=3
component-node name=after component=after input=Round(pool, 4)
output-node name=output input=after
"""


def least_frames(model: onnx.ModelProto) -> int:
    """The fewest frames that a model takes."""
    properties = {entry.key: entry.value for entry in model.metadata_props}
    return int(properties["nnet3.least_frames"])


def expected(nnet: Nnet, given: dict[str, np.ndarray], times: range) -> np.ndarray:
    """The outputs at some times, of a computation for exactly these inputs."""
    inputs = [IoSpecification.from_range(name, 0, len(rows)) for name, rows in given.items()]
    outputs = [IoSpecification.from_range("output", times.start, times.stop)]
    request = ComputationRequest(inputs=inputs, outputs=outputs)
    return OnnxComputer(nnet, compile_computation(nnet, request)).forward(given)["output"]


def drawn(nnet: Nnet, frames: int) -> dict[str, np.ndarray]:
    """Random inputs; one row of an i-vector."""
    rng = np.random.default_rng(frames)
    return {
        node.name: rng.standard_normal(
            (1 if node.name == "ivector" else frames, node.dim), np.float32
        )
        for node in nnet.input_nodes
    }


def test_an_output_for_each_frame() -> None:
    """Outputs are those of a computation for the same frames, for any number of them."""
    nnet = network(SPLICED)

    model = to_onnx_of_any_length(nnet)

    session = session_of(model)
    assert least_frames(model) == 2
    for more in LENGTHS:
        given = drawn(nnet, 1 + more)
        [found] = session.run(["output"], {"input": np.stack([given["input"]] * 2)})
        np.testing.assert_allclose(found[1], expected(nnet, given, range(1, 1 + more)), atol=1e-6)


def test_pooling_over_all_frames() -> None:
    """One row for all frames is that of a computation, with a window, optional terms, an i-vector.

    Windows of 36 frames end before the longest utterances do.
    """
    nnet = network(POOLED)

    model = to_onnx_of_any_length(nnet, output_time=0, sequences=1)

    session = session_of(model)
    least = least_frames(model)
    for more in LENGTHS:
        given = drawn(nnet, least - 1 + more)
        [found] = session.run(None, {name: rows[None] for name, rows in given.items()})
        np.testing.assert_allclose(found[0], expected(nnet, given, range(1)), atol=1e-5)


@pytest.mark.parametrize(
    ("component", "dim"),
    [
        (
            "TimeHeightConvolution num-filters-in=2 num-filters-out=2 height-in=3 "
            "height-out=3 height-offsets=-1,0,1 time-offsets=-3,0,4",
            6,
        ),
        (
            "RestrictedAttention key-dim=2 value-dim=6 num-left-inputs=3 "
            "num-right-inputs=3 num-left-inputs-required=1 num-right-inputs-required=2 "
            "output-context=false",
            17,
        ),
    ],
    ids=["convolution", "attention"],
)
def test_an_optional_term_that_short_utterances_lack(component: str, dim: int) -> None:
    """A convolution or attention that requires more frames than there are counts as zeros."""
    total = "sum NoOp dim=6 input=Sum(input, IfDefined(c))"
    nnet = network(
        stacked(6, f"affine Affine input-dim=6 output-dim={dim}", f"c {component}", total)
    )

    session = session_of(to_onnx_of_any_length(nnet))

    for frames in range(1, 10):
        given = drawn(nnet, frames)
        [found] = session.run(None, {"input": np.stack([given["input"]] * 2)})
        np.testing.assert_allclose(found[1], expected(nnet, given, range(frames)), atol=1e-5)


def test_shapes() -> None:
    """The axes of frames are free, and named; the versions are those that are asked for."""
    model = to_onnx_of_any_length(network(SPLICED), sequences="many", opset=18)

    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert shapes == {"input": ["many", "frames", 4], "output": ["many", "output_frames", 3]}
    assert model.opset_import[0].version == 18
    assert properties["nnet3.least_onnxruntime"] == "1.15"
    assert (properties["nnet3.left_context"], properties["nnet3.right_context"]) == ("1", "0")


STATISTICS = """
input-node name=input dim=2
input-node name=ivector dim=2
component name=sums type=StatisticsExtractionComponent input-dim=2
component-node name=sums component=sums input=input
component name=pool type=StatisticsPoolingComponent input-dim=5 left-context=1 right-context=1
"""


def reading(descriptor: str) -> str:
    """A network whose output reads a descriptor."""
    return f"""
input-node name=input dim=2
input-node name=ivector dim=2
output-node name=output input={descriptor}
"""


def test_batch_norm_needs_test_mode() -> None:
    """A batch-norm of the rows of an utterance is refused; with statistics it is not."""
    nnet = network(stacked(4, "norm BatchNorm dim=4"))

    with pytest.raises(ExportError, match="'norm' of type BatchNormComponent normalizes by the"):
        to_onnx_of_any_length(nnet)
    assert to_onnx_of_any_length(set_test_mode(nnet)).graph.node
