"""CUDA C++ source of kernels: made from groups of operations, or written by hand."""
