"""Arrays of callers: their checks and conversion, and NumPy's settings while it computes."""

from nnet3_runtime_cuda.arrays.checks import (
    FloatArray,
    as_array,
    as_matrix,
    as_vector,
    check_float32,
    check_output,
    checked_arrays,
    on_host,
    running,
)

__all__ = [
    "FloatArray",
    "as_array",
    "as_matrix",
    "as_vector",
    "check_float32",
    "check_output",
    "checked_arrays",
    "on_host",
    "running",
]
