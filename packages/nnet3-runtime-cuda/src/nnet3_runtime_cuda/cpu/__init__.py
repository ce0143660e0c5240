"""The processor as a machine: operations become calls of NumPy and of a BLAS library."""
