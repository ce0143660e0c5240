"""CUDA C++ source of kernels: from groups of operations, and written by hand."""
