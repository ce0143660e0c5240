"""A graph of standard operators while it is put together: its nodes, and tensors as values."""

from nnet3_runtime_onnx.graph.builder import OPSET as OPSET
from nnet3_runtime_onnx.graph.builder import RUNTIMES as RUNTIMES
from nnet3_runtime_onnx.graph.builder import GraphBuilder as GraphBuilder
from nnet3_runtime_onnx.graph.tensors import Tensor as Tensor
from nnet3_runtime_onnx.graph.tensors import concat as concat
from nnet3_runtime_onnx.graph.tensors import constant as constant
from nnet3_runtime_onnx.graph.tensors import repeated as repeated
