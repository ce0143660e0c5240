"""From the operations of a segment to launches of kernels and matrix products, and to calls.

Launches name views of shadow memory, so no device is needed for them. Binding compiles the kernels
of all segments of a program as one module, and replaces views by addresses of the device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.cuda.element_kernels import Launch, map_kernel
from nnet3_runtime_cuda.cuda.fusion import (
    Kind,
    group_operations,
    later_readers,
    side_by_side,
    with_epilogues,
)
from nnet3_runtime_cuda.cuda.host_steps import Flags, HostSteps
from nnet3_runtime_cuda.cuda.memory import DeviceScratch, ProgramMemory
from nnet3_runtime_cuda.cuda.platform import Call, Gemm, Matrix
from nnet3_runtime_cuda.cuda.recorded import Operation, Product, Special, View
from nnet3_runtime_cuda.cuda.reduction_kernels import WORKSPACE_AT, ColumnKernels, RowKernel
from nnet3_runtime_cuda.cuda.written_kernels import PRELUDE, launch_of

DeviceCall = Launch | Product
"""One launch of a kernel, or one product."""


@attrs.frozen
class LaunchList:
    """The work of the device for one segment.

    Attributes:
        calls: In order.
        decisions: For each call the number of the decision on which it depends, or -1.
        workspace: Bytes of working memory that the kernels share.
    """

    calls: tuple[DeviceCall, ...] = ()
    decisions: tuple[int, ...] = ()
    workspace: int = 0


def launch_list(
    operations: Sequence[Operation], is_scratch: Callable[[View], bool], *, fuse: bool = True
) -> LaunchList:
    """The kernels and products for some operations.

    Args:
        operations: Of one segment.
        is_scratch: Whether a view is of memory that is dead at the end of its command.
        fuse: Whether operations may share kernels.
    """
    if fuse:
        operations = with_epilogues(operations)
    readers = later_readers(operations, is_scratch)
    calls: list[DeviceCall] = []
    decisions: list[int] = []
    workspace = 0
    groups = group_operations(operations, fuse=fuse)
    for beside in side_by_side(groups) if fuse else [[group] for group in groups]:
        group = beside[0]
        first, stores = group.operations[0], group.stores(readers)
        if group.kind is Kind.MAP:
            parts = [(part.operations, part.stores(readers)) for part in beside]
            calls.append(map_kernel(parts))  # type: ignore[arg-type]
        elif group.kind is Kind.ROWS:
            calls.append(RowKernel(group.operations, group.depth, stores).launch())  # type: ignore[arg-type]
        elif group.kind is Kind.COLUMNS:
            columns = ColumnKernels(group.operations, stores)  # type: ignore[arg-type]
            workspace = max(workspace, columns.workspace)
            calls += columns.launches()
        elif isinstance(first, Product):
            calls.append(first)
        else:
            specials = [part.operations[0] for part in beside]
            calls.append(launch_of([each for each in specials if isinstance(each, Special)]))
        decisions += [first.decision] * (len(calls) - len(decisions))
    return LaunchList(tuple(calls), tuple(decisions), workspace)


def module_of(lists: Sequence[LaunchList]) -> tuple[str, dict[str, str]]:
    """The source of all kernels of some segments, each once, and for each text its name."""
    names: dict[str, str] = {}
    texts = [PRELUDE]
    for each in lists:
        for call in each.calls:
            if isinstance(call, Launch) and call.text not in names:
                name = "k" + hashlib.sha256(call.text.encode()).hexdigest()[:12]
                names[call.text] = name
                texts.append(call.text.replace("@", name))
    return "\n".join(texts), names


class DeviceSegment:
    """The one call of a segment: the recorded operations and, once bound, its launches.

    Attributes:
        operations: The recorded operations.
        host: The host's work before them.
        scratch: The working memory of commands.
        launches: The launches and products that are bound.
    """

    def __init__(
        self, operations: tuple[Operation, ...], host: HostSteps, scratch: DeviceScratch
    ) -> None:
        """A segment that is not bound yet."""
        self.operations = operations
        self.host = host
        self.scratch = scratch
        self.launches = LaunchList()
        self._calls: tuple[Call, ...] = ()
        self._capture: Callable[[Sequence[Call]], Call] | None = None
        self._replays: dict[bytes, Call] = {}

    def bind(
        self,
        launches: LaunchList,
        calls: tuple[Call, ...],
        capture: Callable[[Sequence[Call]], Call],
    ) -> None:
        """Takes launches, the bound call of each of them, and what makes one call of several."""
        self.launches, self._calls, self._capture = launches, calls, capture

    def __len__(self) -> int:
        """The most launches and products of the device that it runs."""
        return len(self._calls)

    def __call__(self) -> None:
        """Runs the segment; the device may still be at work when this returns."""
        decisions = self.host.run()
        key = decisions.tobytes()
        replay = self._replays.get(key)
        if replay is None:
            replay = self._replays[key] = self._captured(decisions)
        replay()

    def _captured(self, decisions: Flags) -> Call:
        """The calls that run after these decisions, as one."""
        assert self._capture is not None, "programs are bound before they run"
        chosen = [
            call
            for call, number in zip(self._calls, self.launches.decisions, strict=True)
            if number < 0 or decisions[number]
        ]
        return self._capture(chosen) if chosen else lambda: None


def bind_segments(
    memory: ProgramMemory, segments: Sequence[DeviceSegment], computation: NnetComputation | None
) -> None:
    """Compiles the kernels of all segments as one module, and binds them to memory.

    Raises:
        DeviceMemoryError: there is not enough memory for the computation.
    """
    platform = memory.platform
    lists = [launch_list(each.operations, each.scratch.contains) for each in segments]
    source, names = module_of(lists)
    reserved = memory.reserve((max((each.workspace for each in lists), default=0),), np.uint8)
    memory.commit(computation)
    kernels = platform.build(source, tuple(names.values())) if names else {}
    workspace, for_products = memory.address_of(reserved), platform.workspace()

    def address(view: View) -> int:
        return workspace if view.address == WORKSPACE_AT else memory.address(view.address)

    def bound(call: DeviceCall) -> Call:
        if isinstance(call, Product):
            return platform.gemm(gemm_of(call, memory.address), for_products)
        kernel = kernels[names[call.text]]
        return platform.launch(kernel, call.grid, call.block, [*map(address, call.arguments)])

    for segment, launches in zip(segments, lists, strict=True):
        segment.bind(launches, tuple(map(bound, launches.calls)), platform.capture)


def gemm_of(product: Product, address: Callable[[int], int]) -> Gemm:
    """A product as the platform takes it; of a transposed output, the transposed product."""
    out = _matrix(product.out, address)
    if out.transposed:
        assert product.bias is None, "bias is along the rows of the output"
        flipped = attrs.evolve(
            product,
            a=_flipped(product.b),
            b=_flipped(product.a),
            out=_flipped(product.out),
            addend=None if product.addend is None else _flipped(product.addend),
        )
        return gemm_of(flipped, address)
    same = product.addend is not None and product.addend == product.out
    *stack, rows, columns = product.out.shape
    return Gemm(
        rows=rows,
        columns=columns,
        inner=product.a.shape[-1],
        a=_matrix(product.a, address),
        b=_matrix(product.b, address),
        out=out,
        alpha=product.alpha,
        alpha_at=0 if product.alpha_at is None else address(product.alpha_at.address),
        beta=0.0 if product.addend is None else 1.0,
        addend=None if product.addend is None or same else _matrix(product.addend, address),
        bias=0 if product.bias is None else address(product.bias.address),
        relu=product.relu,
        batch=math.prod(stack),
    )


def _matrix(view: View, address: Callable[[int], int]) -> Matrix:
    """A view of a matrix, or of a stack of them, as an operand of a product."""
    *_, rows, columns = view.shape
    *apart, first, second = view.strides
    place, batch_stride = address(view.address), apart[0] if apart else 0
    if second == 1 or columns == 1:
        assert first >= columns or rows == 1, "rows of the operands of products do not overlap"
        return Matrix(address=place, stride=max(first, columns, 1), batch_stride=batch_stride)
    assert first == 1 or rows == 1, "rows or columns of the operands of products are contiguous"
    assert second >= rows or columns == 1, "columns of the operands of products do not overlap"
    stride = max(second, rows, 1)
    return Matrix(address=place, stride=stride, transposed=True, batch_stride=batch_stride)


def _flipped(view: View) -> View:
    (*stack, rows, columns), (*apart, first, second) = view.shape, view.strides
    return View(view.address, (*stack, columns, rows), (*apart, second, first), view.dtype)
