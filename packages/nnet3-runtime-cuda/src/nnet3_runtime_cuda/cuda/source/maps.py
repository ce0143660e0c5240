"""Kernels of element-wise operations: a thread for each element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import Indexed, Map
from nnet3_runtime_cuda.cuda.source.chain import Chain, KernelText, Stores, check_size

THREADS = 256

MOST_GUARDED_BLOCKS = 1024
"""The most blocks of a kernel whose work a guard can skip: starting a block takes nearly as long as
its work, so fewer blocks go through more elements each."""


@attrs.frozen
class Launch:
    """A kernel, and the views whose addresses are its arguments.

    Attributes:
        text: The kernel, with "@" for its name.
        arguments: The views, in order.
        grid: Numbers of blocks.
        block: Numbers of threads of a block.
    """

    text: str
    arguments: tuple[View, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


def finish(text: KernelText, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Launch:
    """The launch of a finished kernel."""
    threads = block[0] * block[1] * block[2]
    return Launch(text.source("@", threads), tuple(text.arguments), grid, block)


def unravel(text: KernelText, linear: str, shape: tuple[int, ...], prefix: str) -> tuple[str, ...]:
    """Adds lines for the indexes of element number `linear`, and returns their names."""
    names: list[str] = []
    rest = linear
    for k in reversed(range(len(shape))):
        if shape[k] == 1:
            names.append("0")
        elif math.prod(shape[:k]) == 1:
            # Strides can be negative, so indexes are not unsigned.
            text.line(f"const int {prefix}{k} = (int)({rest});")
            names.append(f"{prefix}{k}")
        else:
            text.line(f"const int {prefix}{k} = (int)({rest} % {shape[k]}u);")
            names.append(f"{prefix}{k}")
            text.line(f"const unsigned {prefix}_{k} = {rest} / {shape[k]}u;")
            rest = f"{prefix}_{k}"
    return tuple(reversed(names))


def map_kernel(parts: Sequence[tuple[Sequence[Map], Stores]]) -> Launch:
    """The kernel of one or several parts: operations of one shape.

    The parts do not access each other's memory. Each has its own blocks, so that all threads of a
    block do the same work.
    """
    text = KernelText()
    guards = parts[0][0][0].guards
    text.guard(guards)
    blocks = 0
    for operations, stores in parts:
        operations, shape = collapsed(operations)
        size = math.prod(shape)
        check_size(size)
        count = -(-size // THREADS)
        if guards:
            count = min(count, MOST_GUARDED_BLOCKS)
        text.line(f"if (blockIdx.x < {blocks + count}u) {{")
        first = f"(blockIdx.x - {blocks}u) * {THREADS}u + threadIdx.x"
        if count * THREADS < size:
            text.line(f"for (unsigned i = {first}; i < {size}u; i += {count * THREADS}u) {{")
        else:
            text.line(f"const unsigned i = {first};")
            text.line(f"if (i < {size}u) {{")
        chain = Chain(text, unravel(text, "i", shape, "i"), "i")
        for number, operation in enumerate(operations):
            chain.run(operation, store=stores(number))
        chain.store_all()
        text.line("}")
        text.line("return;")
        text.line("}")
        blocks += count
    return finish(text, (blocks, 1, 1), (THREADS, 1, 1))


def collapsed(operations: Sequence[Map]) -> tuple[list[Map], tuple[int, ...]]:
    """The operations with neighbouring dimensions joined, where all views allow it."""
    shape = operations[0].shape
    views = [view for op in operations for view in (*op.operands, op.out) if isinstance(view, View)]
    indexed = any(isinstance(o, Indexed) for op in operations for o in (*op.operands, op.out))
    joins = [
        not indexed and all(v.strides[k] == v.strides[k + 1] * shape[k + 1] for v in views)
        for k in range(len(shape) - 1)
    ]
    if not any(joins):
        return list(operations), shape
    new_shape = _joined_shape(shape, joins)

    def joined(view: View) -> View:
        strides = [s for k, s in enumerate(view.strides) if k == len(joins) or not joins[k]]
        return View(view.address, new_shape, tuple(strides), view.dtype)

    changed = [
        attrs.evolve(
            op,
            operands=tuple(joined(o) if isinstance(o, View) else o for o in op.operands),
            out=joined(op.out) if isinstance(op.out, View) else op.out,
            shape=new_shape,
        )
        for op in operations
    ]
    return changed, new_shape


def _joined_shape(shape: tuple[int, ...], joins: list[bool]) -> tuple[int, ...]:
    sizes, size = [], 1
    for k, n in enumerate(shape):
        size *= n
        if k == len(joins) or not joins[k]:
            sizes.append(size)
            size = 1
    return tuple(sizes)
