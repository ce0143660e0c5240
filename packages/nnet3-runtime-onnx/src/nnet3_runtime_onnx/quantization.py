"""Models in 8 bits, by ONNX Runtime's dynamic quantization, and what that changes in outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from nnet3_computation import OutputDifference
from numpy.typing import NDArray
from onnx import helper

from nnet3_runtime_onnx.commands import NEXT_STATE, STATE
from nnet3_runtime_onnx.computer import session_of
from nnet3_runtime_onnx.errors import RunError

Array = NDArray[np.float32]

_PREPARED = "onnx.quant.pre_process"
"""The property by which the quantizer knows that a model needs no preparation: ours have none of
what it would fold."""


def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model whose matrix products are of integers of 8 bits.

    It has the matrices of affine components in 8 bits, and finds for each product the range of the
    other factor as it runs (`onnxruntime.quantization.quantize_dynamic`). Convolutions stay as
    they are.

    Args:
        model: A model that `to_onnx` or `to_onnx_of_any_length` returned.
    """
    # Imported here: who exports without it need not wait for it.
    from onnxruntime.quantization import QuantType, quantize_dynamic

    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    helper.set_model_props(prepared, {**_properties(model), _PREPARED: "onnxruntime.quant"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantized.onnx")
        quantize_dynamic(
            prepared, path, op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8
        )
        found = onnx.load(path)
    helper.set_model_props(found, {**_properties(model), "nnet3.quantized": "int8"})
    return found


def _properties(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def quantization_error(
    models: Sequence[onnx.ModelProto],
    quantized_models: Sequence[onnx.ModelProto],
    utterances: Iterable[tuple[Array, Array | None]],
) -> OutputDifference:
    """Returns how the outputs of utterances differ.

    Args:
        models: One model, or the two of a stream.
        quantized_models: The same, quantized.
        utterances: For each its features, (frames, input_dim), and its i-vector, (ivector_dim,),
            if the network takes one.

    Raises:
        RunError: there are no utterances, or their features or i-vectors do not fit the models.
    """
    both = [[session_of(model) for model in each] for each in (models, quantized_models)]
    pairs = [
        [_outputs(sessions, features, ivector) for sessions in both]
        for features, ivector in utterances
    ]
    if not pairs:
        raise RunError("there are no utterances to compare the outputs of")
    return OutputDifference.between(*(np.concatenate(each) for each in zip(*pairs, strict=True)))


def _outputs(
    sessions: Sequence[onnxruntime.InferenceSession], features: Array, ivector: Array | None
) -> Array:
    """Returns the outputs of an utterance, (rows, output_dim); see `quantization_error`."""
    metadata = sessions[0].get_modelmeta().custom_metadata_map
    about = {key: int(text) for key, text in metadata.items() if text.lstrip("-").isdigit()}
    for what, found, kind in (
        ("features", features.shape[1], "input"),
        ("an i-vector", 0 if ivector is None else len(ivector), "ivector"),
    ):
        expected = about[f"nnet3.{kind}_dim"]
        if found != expected:
            raise RunError(f"{what}: expected {expected} columns, found {found}")
    left, right = about["nnet3.left_context"], about["nnet3.right_context"]
    least = about.get("nnet3.least_frames", 1) - left - right
    size = about["nnet3.frames_per_chunk"] or max(len(features), least)
    begins = np.arange(0, len(features), size)
    if len(sessions) > 1:
        times = _times_of_calls(sessions, -left, begins[-1] + size + right)
    else:
        times = [begins[:, None] + np.arange(-left, size + right)]
    rows: list[Array] = []
    state: dict[str, Array] = {}
    for number, time in enumerate(times):
        session = sessions[min(number, len(sessions) - 1)]
        names = [each.name for each in session.get_outputs()]
        given = {**state, "input": features[time.clip(0, len(features) - 1)]}
        if ivector is not None:
            given["ivector"] = np.tile(ivector, (len(time), 1, 1))
        outputs = dict(zip(names, _run(session, names, given), strict=True))
        output = outputs.pop("output")
        rows.append(output.reshape(-1, output.shape[-1]))
        state = {name.replace(NEXT_STATE, STATE, 1): array for name, array in outputs.items()}
    return np.concatenate(rows)[: -(-len(features) // about["nnet3.frame_subsampling_factor"])]


def _times_of_calls(
    sessions: Sequence[onnxruntime.InferenceSession], begin: int, end: int
) -> list[NDArray[np.int64]]:
    """Returns the times of the frames that the calls of a stream take, (1, frames)."""
    first, again = (
        next(each.shape[1] for each in session.get_inputs() if each.name == "input")
        for session in sessions
    )
    begins = [begin, *range(begin + first, end, again)]
    return [
        (start + np.arange(again if number else first))[None] for number, start in enumerate(begins)
    ]


def _run(
    session: onnxruntime.InferenceSession, names: Sequence[str], given: dict[str, Array]
) -> list[Array]:
    """Returns outputs for any number of sequences; the last fills up a fixed number of them."""
    count, fixed = len(given["input"]), session.get_inputs()[0].shape[0]
    size = fixed if isinstance(fixed, int) else count
    parts = []
    for begin in range(0, count, size):
        chosen = np.arange(begin, begin + size).clip(0, count - 1)
        part = {name: array[chosen].astype(np.float32) for name, array in given.items()}
        parts.append(session.run(names, part))
    return [np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True)]
