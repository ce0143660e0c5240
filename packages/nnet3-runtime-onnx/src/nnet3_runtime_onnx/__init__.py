"""Kaldi nnet3 computations as ONNX graphs of standard operators, and their runs in ONNX Runtime."""

from nnet3_runtime_onnx.computer import OnnxComputer
from nnet3_runtime_onnx.errors import ExportError, RunError
from nnet3_runtime_onnx.export import to_onnx

__version__ = "0.1.0"

__all__ = ["ExportError", "OnnxComputer", "RunError", "to_onnx"]
