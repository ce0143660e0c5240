"""Kernels written by hand, for operations that are neither maps nor reductions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.source.chain import check_size

THREADS = 256


@attrs.frozen
class HandWritten:
    """A kernel written by hand, for operands of given shapes.

    Attributes:
        name: A short description, for messages.
        source: Its text, with "@" for the kernel's name.
        grid: Number of blocks.
        block: Number of threads of a block.
    """

    name: str
    source: str
    grid: int = 1
    block: int = THREADS


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


def range_sum(source: View, ranges: View, out: View) -> HandWritten:
    """out[i, c] = sum over begin <= r < end of source[r, c], with (begin, end) = ranges[i]."""
    rows, columns = out.shape
    (in_row, in_column), (out_row, out_column) = source.strides, out.strides
    body = f"""\
  const unsigned row = i / {columns}u;
  const long long c = i % {columns}u, end = ranges[row * 2 + 1];
  double total = 0;
  for (long long r = ranges[row * 2]; r < end; ++r) total += in[r * {in_row} + c * {in_column}];
  out[(long long)row * {out_row} + c * {out_column}] = total;"""
    parameters = f"{source.c_type}* in, {ranges.c_type}* ranges, {out.c_type}* out"
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
