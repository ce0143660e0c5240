"""The matrices of a computation: the place of each element in the tensors of a graph."""

from nnet3_runtime_onnx.matrices.matrices import Matrices, sums_of_ranges
from nnet3_runtime_onnx.matrices.regions import ZERO, Region, Strip

__all__ = ["ZERO", "Matrices", "Region", "Strip", "sums_of_ranges"]
