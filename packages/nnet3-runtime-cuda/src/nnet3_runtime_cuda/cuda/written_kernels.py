"""Kernels written by hand, for operations that are neither maps nor reductions, and the prelude.

The prelude is the text that every module begins with: functions for both precisions, sums over a
block, random numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nnet3_runtime_cuda.cuda.element_kernels import THREADS, Launch, check_size
from nnet3_runtime_cuda.cuda.recorded import HandWritten, Special, View

PRELUDE = """\
__device__ inline float exp_(float a) { return expf(a); }
__device__ inline double exp_(double a) { return exp(a); }
__device__ inline float log_(float a) { return logf(a); }
__device__ inline double log_(double a) { return log(a); }
__device__ inline float tanh_(float a) { return tanhf(a); }
__device__ inline double tanh_(double a) { return tanh(a); }
__device__ inline float sqrt_(float a) { return sqrtf(a); }
__device__ inline double sqrt_(double a) { return sqrt(a); }
__device__ inline float ceil_(float a) { return ceilf(a); }
__device__ inline double ceil_(double a) { return ceil(a); }
__device__ inline float rint_(float a) { return rintf(a); }
__device__ inline double rint_(double a) { return rint(a); }

// As in NumPy, what is not a number stays so.
template <class T> __device__ inline T larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ inline T smaller(T a, T b) { return a < b || a != a ? a : b; }

struct Sum {
  template <class T> __device__ static T of(T a, T b) { return a + b; }
};
struct Largest {
  template <class T> __device__ static T of(T a, T b) { return larger(a, b); }
};

// Combines the values of all threads of a block of SIZE threads; all get the result.
template <class F, int SIZE, class T> __device__ T over_block(T value) {
  __shared__ T values[SIZE], parts[32];
  const int t = threadIdx.x;
  values[t] = value;
  __syncthreads();
  if (t < 32) {
    for (int k = t + 32; k < SIZE; k += 32) value = F::of(value, values[k]);
    parts[t] = value;
  }
  __syncthreads();
  T result = parts[0];
  for (int k = 1; k < 32; ++k) result = F::of(result, parts[k]);
  __syncthreads();
  return result;
}

// Philox 4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a number
// in [0, 1) for each element, operation, run and key.
__device__ inline float uniform(double key, double stream, double run, unsigned element) {
  unsigned c0 = element, c1 = (unsigned)stream;
  unsigned c2 = (unsigned)(unsigned long long)run, c3 = (unsigned)((unsigned long long)run >> 32);
  unsigned k0 = (unsigned)(unsigned long long)key, k1 = 0x2545F491u;
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    c0 = (unsigned)(b >> 32) ^ c1 ^ k0;
    c1 = (unsigned)b;
    c2 = (unsigned)(a >> 32) ^ c3 ^ k1;
    c3 = (unsigned)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (float)(c0 >> 8) * 5.9604644775390625e-8f;
}
"""

_HEAD = re.compile(
    r'extern "C" __global__ void __launch_bounds__\((?P<threads>\d+)\) @\((?P<parameters>[^)]*)\) {'
)


def can_go_beside(source: str) -> bool:
    """Whether a kernel can share a launch: whether its text holds only the kernel."""
    return _HEAD.match(source) is not None


def beside(kernels: Sequence[HandWritten]) -> HandWritten:
    """Joins kernels that do not access each other's memory; each has its own blocks.

    The arguments are those of the kernels, one after another. All have the same number of threads.
    """
    parameters, parts = [], []
    blocks = 0
    for number, kernel in enumerate(kernels):
        head = _HEAD.match(kernel.source)
        assert head is not None
        start, blocks = blocks, blocks + kernel.grid
        own = [each.rsplit(maxsplit=1) for each in head["parameters"].split(",")]
        parameters += [f"{kind.strip()} a{number}_{k}" for k, (kind, _) in enumerate(own)]
        names = " ".join(
            f"{kind.strip()} {name} = a{number}_{k};" for k, (kind, name) in enumerate(own)
        )
        body = kernel.source[head.end() :].rstrip().removesuffix("}")
        for known, value in (
            ("blockIdx.x", f"(blockIdx.x - {start}u)"),
            ("gridDim.x", f"{kernel.grid}u"),
        ):
            body = body.replace(known, value)
        parts.append(f"if (blockIdx.x < {blocks}u) {{\n  {names}\n{body}  return;\n}}\n")
    threads = kernels[0].block
    source = (
        f'extern "C" __global__ void __launch_bounds__({threads}) @('
        f"{', '.join(parameters)}) {{\n{''.join(parts)}}}\n"
    )
    return HandWritten(kernels[0].name, source, grid=blocks, block=threads)


def launch_of(operations: Sequence[Special]) -> Launch:
    """The launch of one kernel, or of several side by side; guards become its first arguments."""
    kernels = [each.kernel for each in operations]
    kernel = kernels[0] if len(kernels) == 1 else beside(kernels)
    guards, text = operations[0].guards, kernel.source
    for number, guard in reversed(list(enumerate(guards))):
        text = text.replace("@(", f"@({guard.c_type}* g{number}, ", 1)
        text = text.replace(") {\n", f") {{\n  if (!g{number}[0]) return;\n", 1)
    arguments = tuple(view for each in operations for view in (*each.read, *each.written))
    return Launch(text, (*guards, *arguments), (kernel.grid, 1, 1), (kernel.block, 1, 1))


def elementwise(name: str, parameters: str, size: int, body: str) -> HandWritten:
    """A kernel with a thread for each i < size.

    Raises:
        ValueError: There are too many elements for 32 bits.
    """
    check_size(size)
    source = (
        f'extern "C" __global__ void __launch_bounds__({THREADS}) @({parameters}) {{\n'
        f"  const unsigned i = blockIdx.x * {THREADS}u + threadIdx.x;\n"
        f"  if (i >= {size}u) return;\n{body}\n}}\n"
    )
    return HandWritten(name, source, grid=-(-size // THREADS))


def range_sum(source: View, ranges: View, outs: Sequence[View]) -> HandWritten:
    """outs[0][i, c] = sum over begin <= r < end of source[r, c], with (begin, end) = ranges[i].

    outs[1], if there, gets the sums of the squares.
    """
    rows, columns = outs[0].shape
    in_row, in_column = source.strides
    stores = "".join(
        f"\n  out{k}[(long long)row * {out.strides[0]} + c * {out.strides[1]}] = sum{k};"
        for k, out in enumerate(outs)
    )
    body = f"""\
  const unsigned row = i / {columns}u;
  const long long c = i % {columns}u, end = ranges[row * 2 + 1];
  double sum0 = 0, sum1 = 0;
  for (long long r = ranges[row * 2]; r < end; ++r) {{
    const double value = in[r * {in_row} + c * {in_column}];
    sum0 += value;
    sum1 += value * value;
  }}{stores}"""
    parameters = f"{source.c_type}* in, {ranges.c_type}* ranges"
    parameters += "".join(f", {out.c_type}* out{k}" for k, out in enumerate(outs))
    return elementwise("range_sum", parameters, rows * columns, body)


def pack_signs(values: View, out: View) -> HandWritten:
    """Bit k of out[r, j] = whether values[r, 8 j + k] > 0."""
    rows, width = out.shape
    columns = values.shape[1]
    body = f"""\
  const long long r = i / {width}u, j = i % {width}u;
  unsigned bits = 0;
  for (int k = 0; k < 8; ++k) {{
    const long long c = 8 * j + k;
    if (c < {columns} && in[r * {values.strides[0]} + c * {values.strides[1]}] > 0)
      bits |= 1u << k;
  }}
  out[r * {out.strides[0]} + j * {out.strides[1]}] = bits;"""
    parameters = f"{values.c_type}* in, {out.c_type}* out"
    return elementwise("pack_signs", parameters, rows * width, body)
