"""The matrices of a computation: the place of each element in the tensors of a graph."""

from nnet3_runtime_onnx.matrices.matrices import Matrices
from nnet3_runtime_onnx.matrices.regions import ZERO, Region, Strip
from nnet3_runtime_onnx.matrices.sums import sums_of_ranges

__all__ = ["ZERO", "Matrices", "Region", "Strip", "sums_of_ranges"]
