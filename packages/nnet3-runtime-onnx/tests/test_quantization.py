"""Models in 8 bits: what becomes of them, and how their outputs differ."""

from functools import partial

import numpy as np
import onnx
import pytest
from exported_programs import session_of
from nnet3_compiler import CompilerOptions, compile_looped, looped_requests
from nnet3_runtime_onnx import quantization_error, quantized, to_onnx, to_onnx_of_any_length
from small_networks import RECURRENT, SPLICED, network

DIMS = {"nnet3.input_dim": "4", "nnet3.ivector_dim": "0"}


def whole_model() -> onnx.ModelProto:
    """A model of whole utterances."""
    return to_onnx_of_any_length(network(SPLICED), metadata=DIMS)


def stream_models(frames: int = 5) -> list[onnx.ModelProto]:
    """The two models of a stream."""
    nnet = network(RECURRENT)
    requests = looped_requests(nnet, frames, context=(0, 0))
    computation = compile_looped(nnet, requests, CompilerOptions(output_debug_info=True))
    contexts = {
        f"nnet3.{name}": str(number)
        for name, number in {
            "left_context": 0,
            "right_context": 0,
            "frames_per_chunk": frames,
            "frame_subsampling_factor": 1,
        }.items()
    }
    export = partial(to_onnx, nnet, computation, sequences=2, metadata=DIMS | contexts)
    return [export(part="start"), export(part="round")]


def features(frames: int, dim: int = 4) -> np.ndarray:
    """Random features."""
    return np.random.default_rng(frames).standard_normal((frames, dim), np.float32)


def test_products_are_of_integers() -> None:
    """Products of constants are quantized, and the metadata stay, with the number form."""
    model = whole_model()

    found = quantized(model)

    assert [node.op_type for node in found.graph.node].count("MatMulInteger") == 1
    assert not [node for node in found.graph.node if node.op_type == "MatMul"]
    before, after = (
        {entry.key: entry.value for entry in each.metadata_props} for each in (model, found)
    )
    assert after == {**before, "nnet3.quantized": "int8"}
    assert found.graph.output == model.graph.output
    assert [node for node in model.graph.node if node.op_type == "MatMul"]


def test_differences_are_measured() -> None:
    """The figures are those of all rows of all utterances."""
    model = whole_model()
    utterances = [(features(frames), None) for frames in (2, 9, 30)]

    error = quantization_error([model], [quantized(model)], utterances)

    padded = [np.concatenate([rows[:1], rows]) for rows, _ in utterances]
    outputs, others = (
        np.concatenate([session_of(each).run(None, {"input": rows[None]})[0][0] for rows in padded])
        for each in (model, quantized(model))
    )
    assert error.rows == 41
    assert error.largest == pytest.approx(np.abs(others - outputs).max())
    assert error.largest_value == pytest.approx(np.abs(outputs).max())
    assert 0 < error.relative < 0.05
    assert error.same_column == np.mean(outputs.argmax(axis=1) == others.argmax(axis=1))
    assert str(error).startswith("41 rows of output differ by ")


def test_streams_are_measured_call_by_call() -> None:
    """A stream hands its state on, and its rows are those of the frames."""
    models = stream_models()
    utterances = [(features(frames), None) for frames in (1, 5, 23)]

    same = quantization_error(models, models, utterances)
    error = quantization_error(models, [quantized(each) for each in models], utterances)

    assert (same.rows, same.largest, same.same_column) == (29, 0.0, 1.0)
    assert error.rows == 29
    assert 0 < error.relative < 0.1
