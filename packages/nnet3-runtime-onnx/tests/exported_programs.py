"""Requests for small networks, what their definition gives, and models that are ready to run."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_reference import ReferenceComputer
from small_networks import request_for


def request(frames: int, left: int = 1, sequences: int = 1) -> ComputationRequest:
    """A request for frames from 0 on."""
    return request_for(range(-left, frames), range(frames), sequences)


def defined(
    nnet: Nnet, computation: NnetComputation, given: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs by definition."""
    return ReferenceComputer(nnet, computation).forward(given)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A model, ready to run."""
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
