"""The matrices of a computation: the place of each element in the tensors of a graph."""

from nnet3_runtime_onnx.matrices.matrices import Matrices as Matrices
from nnet3_runtime_onnx.matrices.matrices import sums_of_ranges as sums_of_ranges
from nnet3_runtime_onnx.matrices.regions import ZERO as ZERO
from nnet3_runtime_onnx.matrices.regions import Region as Region
from nnet3_runtime_onnx.matrices.regions import Strip as Strip
