"""A graph of standard operators while it is put together: its nodes, and tensors as values."""

from nnet3_runtime_onnx.graph.builder import OPSET, RUNTIMES, GraphBuilder
from nnet3_runtime_onnx.graph.tensors import Tensor, concat, constant, repeated

__all__ = ["OPSET", "RUNTIMES", "GraphBuilder", "Tensor", "concat", "constant", "repeated"]
