"""A segment of a program: the host's work before it, and its launches of kernels and products.

An estimate of the natural gradient begins with the first minibatch that uses it, moves on each of
the next few, and then on one in a period. A segment uses many estimates, so it makes the decisions
for all of them at once.

Launches name views of shadow memory, so no device is needed for them. Binding compiles the kernels
of all segments of a program as one module, and replaces views by addresses of the device.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.cuda import fusion
from nnet3_runtime_cuda.cuda.branches import Accesses, accesses_of, branches_of, needs_of, waits_of
from nnet3_runtime_cuda.cuda.element_kernels import Launch, map_kernel
from nnet3_runtime_cuda.cuda.memory import DeviceScratch, ProgramMemory, ShadowMemory
from nnet3_runtime_cuda.cuda.platform import Call, Gemm, Matrix
from nnet3_runtime_cuda.cuda.recorded import Operation, Product, Special, View
from nnet3_runtime_cuda.cuda.reduction_kernels import WORKSPACE_AT, ColumnKernels, RowKernel
from nnet3_runtime_cuda.cuda.written_kernels import PRELUDE, launch_of
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import INITIAL_UPDATES

ALWAYS = -1
"""The number for no decision: operations with it always run."""

BLOCK = 1 << 16
"""The size of the blocks that arrays are packed into; each block is one upload."""

VALUES = 1 << 10
"""The most numbers of the host that lie together."""

Flags = npt.NDArray[np.bool_]


class Clock:
    """Counts the minibatches that have used each estimate of a network, and random draws.

    Attributes:
        minibatches: (estimates,).
        draws: For each operation that draws random numbers, how often it has.
        is_frozen: Whether estimates stay fixed after they have begun.
    """

    def __init__(self) -> None:
        """Starts without estimates."""
        self.minibatches = np.zeros(0, dtype=np.int64)
        self.draws: list[int] = []
        self.is_frozen = False

    def add(self) -> int:
        """A new estimate; returns its number."""
        self.minibatches = np.append(self.minibatches, 0)
        return len(self.minibatches) - 1

    def new_draws(self) -> Callable[[], float]:
        """Counts the draws of a further operation: calls give 0, 1, 2, ..."""
        number = len(self.draws)
        self.draws.append(0)

        def count() -> float:
            self.draws[number] += 1
            return float(self.draws[number] - 1)

        return count

    def keep(self) -> Callable[[], object]:
        """Keeps all counts; the call that it returns sets them back."""
        minibatches, draws = self.minibatches.copy(), self.draws.copy()

        def restore() -> None:
            self.minibatches[: len(minibatches)] = minibatches
            self.draws[: len(draws)] = draws

        return restore


class HostSteps:
    """The work of the host before a segment runs: collected by the tape, then done in each run.

    Decisions come first: whether an estimate begins, and whether it moves, at each of its uses.

    Attributes:
        num_decisions: Number of decisions.
    """

    def __init__(self, memory: ShadowMemory, clock: Clock) -> None:
        """Starts without anything to do.

        Args:
            memory: The memory of the arrays.
            clock: Counts the minibatches on which the decisions depend.
        """
        self.num_decisions = 0
        self._clock = clock
        self._times: Counter[int] = Counter()
        # For each use the estimate, its earlier uses in the same run, its period, and `begins`.
        self._uses: list[tuple[int, int, int, int]] = []
        self._unions: list[tuple[int, list[int]]] = []
        self._memory = memory
        self._functions: list[Callable[[], Any]] = []
        self._values: list[tuple[Array, list[int]]] = []  # arrays, for the results of functions
        self._flagged: list[tuple[Array, npt.NDArray[np.int64]]] = []  # arrays, for decisions
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._used = 0  # bytes of the last block

    # ---- decisions ----

    def use(self, estimate: int, period: int) -> tuple[int, int]:
        """The decisions whether an estimate begins and moves at its next use, by number.

        Args:
            estimate: Number of the estimate.
            period: The number of uses in which it moves once.
        """
        self._uses.append((estimate, self._times[estimate], period, self.num_decisions))
        self._times[estimate] += 1
        self.num_decisions += 2
        return self.num_decisions - 2, self.num_decisions - 1

    def any_of(self, decisions: Sequence[int]) -> int:
        """The decision whether any of these is positive; `ALWAYS` if there are none."""
        if not decisions:
            return ALWAYS
        if len(decisions) == 1:
            return decisions[0]
        self._unions.append((self.num_decisions, list(decisions)))
        self.num_decisions += 1
        return self.num_decisions - 1

    @property
    def starts(self) -> frozenset[int]:
        """Numbers of the decisions that are positive only when an estimate begins."""
        return frozenset(begins for *_, begins in self._uses)

    @cached_property
    def _flags(self) -> Flags:
        return np.zeros(self.num_decisions, dtype=np.bool_)

    @cached_property
    def _columns(self) -> tuple[npt.NDArray[np.int64], ...]:
        """For each use what `_uses` has, and for each estimate its uses in a run."""
        estimates, *others = np.array(self._uses, dtype=np.int64).reshape(-1, 4).T
        return estimates, *others, np.bincount(estimates)

    def decide(self) -> Flags:
        """Makes the decisions for the coming run, which is counted; (decisions,), until the next.

        Returns:
            For each decision whether it is positive.
        """
        flags = self._flags
        if not len(flags):
            return flags
        estimates, before, periods, begins, uses = self._columns
        minibatches = self._clock.minibatches
        seen = minibatches[estimates] + before
        flags[begins] = seen == 0
        since = seen - INITIAL_UPDATES
        is_time = (since <= 0) | (since % periods == 0)
        flags[begins + 1] = is_time & (not self._clock.is_frozen)
        for number, members in self._unions:
            flags[number] = flags[members].any()
        minibatches[: len(uses)] += uses
        return flags

    # ---- numbers and arrays ----

    def array(
        self, fill: Callable[[Array], object], shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> Array:
        """A zeroed array that a function fills before each run."""
        array = self._zeros(shape, dtype)
        self.note(lambda: fill(array))
        return array

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: the result of a function that is called before each run."""
        if not self._values or len(self._values[-1][1]) == VALUES:
            self._values.append((self._zeros((VALUES,), np.float64), []))
        array, functions = self._values[-1]
        functions.append(len(self._functions))
        self.note(function)
        return array[len(functions) - 1 : len(functions)]

    def note(self, function: Callable[[], object]) -> None:
        """A function to be called before each run."""
        self._functions.append(function)

    def table(self, known: Array, decisions: Sequence[int]) -> Array:
        """A copy of a table, (rows, columns) float64, with decisions in its last column.

        Args:
            known: The table.
            decisions: For each row the number of the decision that is put there before each run.
        """
        table = self._zeros(known.shape, known.dtype)
        table[...] = known
        self._flagged.append((table[:, -1], np.array(decisions, dtype=np.int64)))
        return table

    @property
    def is_used(self) -> bool:
        """Whether the host has anything to do."""
        return bool(self._functions or self.num_decisions)

    def _zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape)) * kind.itemsize
        size = -(-max(nbytes, 1) // 16) * 16
        if not self._blocks or self._used + size > self._blocks[-1].nbytes:
            self._blocks[-1:] = [block[: self._used] for block in self._blocks[-1:]]
            self._blocks.append(np.zeros(max(BLOCK, size), dtype=np.uint8))
            self._memory.place(self._blocks[-1])
            self._used = 0
        start, self._used = self._used, self._used + size
        array: Array = self._blocks[-1][start : start + nbytes].view(kind).reshape(shape)
        return array

    @cached_property
    def _results(self) -> list[tuple[Array, Callable[[list[Any]], Any]]]:
        """For each array of numbers what takes them, in one call, out of all results."""
        return [(array[: len(chosen)], itemgetter(*chosen)) for array, chosen in self._values]

    @cached_property
    def _uploads(self) -> list[tuple[int, Array]]:
        """The address and the used part of each block; programs are bound before they run."""
        self._blocks[-1:] = [block[: self._used] for block in self._blocks[-1:]]
        return [(self._memory.address_of(block), block) for block in self._blocks]

    def run(self) -> Flags:
        """Does the work; returns the decisions, (decisions,), which hold until the next run."""
        flags = self.decide()
        results = [function() for function in self._functions]
        for array, chosen in self._results:
            array[...] = chosen(results)
        for array, numbers in self._flagged:
            array[...] = flags[numbers]
        for address, block in self._uploads:
            self._memory.platform.upload(address, block)
        return flags


# ---- launches ----

DeviceCall = Launch | Product
"""One launch of a kernel, or one product."""

Capture = Callable[[Sequence[Call], Sequence[int], Sequence[Sequence[int]]], Call]
"""`Platform.capture`."""


@attrs.frozen
class LaunchList:
    """The work of the device for one segment.

    Attributes:
        calls: In order.
        accesses: For each call the memory that it accesses, without workspaces.
        workspace: Bytes of working memory that the kernels of a branch share.
        starts: The numbers of decisions that are positive only when an estimate begins.
    """

    calls: tuple[DeviceCall, ...] = ()
    accesses: tuple[Accesses, ...] = ()
    workspace: int = 0
    starts: Collection[int] = frozenset()

    @property
    def decisions(self) -> list[int]:
        """For each call the number of the decision on which it depends, or -1."""
        return [each.decision for each in self.accesses]

    @cached_property
    def needs(self) -> list[list[int]]:
        """For each call the calls that it must follow."""
        return needs_of(self.accesses)

    @cached_property
    def branches(self) -> list[int]:
        """For each call its branch."""
        counts = [number not in self.starts for number in self.decisions]
        return branches_of(self.needs, counts)


def launch_list(
    operations: Sequence[Operation],
    is_scratch: Callable[[View], bool],
    *,
    starts: Collection[int] = frozenset(),
) -> LaunchList:
    """The kernels and products for some operations.

    Args:
        operations: Of one segment.
        is_scratch: Whether a view is of memory that is dead at the end of its command.
        starts: The numbers of decisions that are positive only when an estimate begins.
    """
    operations = fusion.with_epilogues(operations)
    readers = fusion.later_readers(operations, is_scratch)
    calls: list[DeviceCall] = []
    accesses: list[Accesses] = []
    workspace = 0
    for beside in fusion.side_by_side(fusion.group_operations(operations)):
        parts = [(part, part.stores(readers)) for part in beside]
        group, stores = parts[0]
        first = group.operations[0]
        if group.kind is fusion.Kind.MAP:
            calls.append(map_kernel([(part.operations, stored) for part, stored in parts]))  # type: ignore[misc]
        elif group.kind is fusion.Kind.ROWS:
            calls.append(RowKernel(group.operations, group.depth, stores).launch())  # type: ignore[arg-type]
        elif group.kind is fusion.Kind.COLUMNS:
            columns = ColumnKernels(group.operations, stores)  # type: ignore[arg-type]
            workspace = max(workspace, columns.workspace)
            calls += columns.launches()
        elif isinstance(first, Product):
            calls.append(first)
        else:
            specials = [part.operations[0] for part in beside]
            calls.append(launch_of([each for each in specials if isinstance(each, Special)]))
        # Two stages of a sum have the same, so they go to the same branch and share its workspace.
        accesses += [accesses_of(parts)] * (len(calls) - len(accesses))
    return LaunchList(tuple(calls), tuple(accesses), workspace, starts)


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
        self._capture: Capture | None = None
        self._replays: dict[bytes, Call] = {}

    def bind(self, launches: LaunchList, calls: tuple[Call, ...], capture: Capture) -> None:
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
        launches = self.launches
        chosen = [
            number
            for number, decision in enumerate(launches.decisions)
            if decision < 0 or decisions[decision]
        ]
        if not chosen:
            return lambda: None
        return self._capture(
            [self._calls[number] for number in chosen],
            [launches.branches[number] for number in chosen],
            waits_of(launches.branches, launches.needs, chosen),
        )


def bind_segments(
    memory: ProgramMemory, segments: Sequence[DeviceSegment], computation: NnetComputation | None
) -> None:
    """Compiles the kernels of all segments as one module, and binds them to memory.

    Raises:
        DeviceMemoryError: there is not enough memory for the computation.
    """
    platform = memory.platform
    lists = [
        launch_list(each.operations, each.scratch.contains, starts=each.host.starts)
        for each in segments
    ]
    source, names = module_of(lists)
    workspace = max((each.workspace for each in lists), default=0)
    count = 1 + max((branch for each in lists for branch in each.branches), default=0)
    reserved = [memory.reserve((workspace,), np.uint8) for _ in range(count)]
    memory.commit(computation)
    kernels = platform.build(source, tuple(names.values())) if names else {}
    for_kernels = [memory.address_of(each) for each in reserved]
    for_products = [platform.workspace() for _ in range(count)]

    def bound(call: DeviceCall, branch: int) -> Call:
        if isinstance(call, Product):
            return platform.gemm(gemm_of(call, memory.address), for_products[branch])
        addresses = [
            for_kernels[branch] if view.address == WORKSPACE_AT else memory.address(view.address)
            for view in call.arguments
        ]
        return platform.launch(kernels[names[call.text]], call.grid, call.block, addresses)

    for segment, launches in zip(segments, lists, strict=True):
        calls = tuple(map(bound, launches.calls, launches.branches))
        segment.bind(launches, calls, platform.capture)


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
