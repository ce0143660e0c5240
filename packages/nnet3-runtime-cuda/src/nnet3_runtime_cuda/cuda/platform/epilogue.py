"""A kernel for the end of a product, bias and rectification, if cuBLASLt cannot do them."""

from __future__ import annotations

from nnet3_runtime_cuda.cuda.platform.platform import Gemm

THREADS = 256

NAME = "add_bias_and_rectify"

_SOURCE = """
extern "C" __global__ void {name}(float* out, const float* bias) {{
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= {size}LL) return;
  const long long column = element % {columns}LL, row = element / {columns}LL;
  const long long place = row / {rows}LL * {batch_stride}LL + row % {rows}LL * {stride}LL + column;
  float value = out[place] + {bias};
  {rectify}
  out[place] = value;
}}
"""


def source(gemm: Gemm) -> str:
    """A kernel `NAME(out, bias)` that adds the bias of a product, and rectifies if it says so."""
    return _SOURCE.format(
        name=NAME,
        size=gemm.batch * gemm.rows * gemm.columns,
        rows=gemm.rows,
        columns=gemm.columns,
        stride=gemm.out.stride,
        batch_stride=gemm.out.batch_stride,
        bias="bias[column]" if gemm.bias else "0.0f",
        rectify="value = value > 0.0f ? value : 0.0f;" if gemm.relu else "",
    )


def grid(gemm: Gemm) -> tuple[int, int, int]:
    """The number of blocks of `THREADS` that cover the result."""
    return -(-gemm.batch * gemm.rows * gemm.columns // THREADS), 1, 1
