"""Branches of a graph: calls that access the same memory keep their order, all others need not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from computations import Case, needs_compiler, passes
from emulated_device import HostPlatform
from nnet3_runtime_cuda.cuda import segments
from nnet3_runtime_cuda.cuda.branches import (
    MOST_BRANCHES,
    Accesses,
    branches_of,
    needs_of,
    waits_of,
)
from nnet3_runtime_cuda.cuda.machine import DeviceMachine
from nnet3_runtime_cuda.cuda.platform import Call, Gemm
from nnet3_runtime_cuda.cuda.recorded import View


def rows(first: int, count: int, *, columns: int = 4, begin: int = 0, width: int = 4) -> View:
    """(count, columns) of a matrix of 4 columns."""
    return View(4096 + 4 * (width * first + begin), (count, columns), (width, 1), "f4")


def call(reads: Sequence[View] = (), writes: Sequence[View] = (), **options: Any) -> Accesses:
    """The accesses of a call."""
    return Accesses(tuple(reads), tuple(writes), **options)


A, B, C, D = (rows(2 * k, 2) for k in range(4))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call([], [A]), call([A], [B])], [[], [0]]),
        ([call([A], [B]), call([], [A])], [[], [0]]),
        ([call([], [A]), call([], [A])], [[], [0]]),
        ([call([A], [B]), call([A], [C])], [[], []]),
        ([call([], [A]), call([], [B]), call([A, B], [C])], [[], [], [0, 1]]),
        # Columns of the same rows are apart.
        (
            [call([], [rows(0, 4, columns=2)]), call([], [rows(0, 4, columns=2, begin=2)])],
            [[], []],
        ),
        # The second call follows the first, and the third the second.
        ([call([], [A]), call([], [A]), call([A], [B])], [[], [0], [1]]),
        # The second may not run, or only with the third.
        ([call([], [A]), call([], [A], decision=0), call([A], [B])], [[], [0], [0, 1]]),
        ([call([], [A]), call([], [A], decision=0), call([A], [B], decision=0)], [[], [0], [1]]),
        ([call([], [A]), call(is_opaque=True), call([], [B])], [[], [0], [1]]),
    ],
)
def test_calls_that_meet(calls: list[Accesses], expected: list[list[int]]) -> None:
    """A call needs those before it that write what it accesses, or read what it writes."""
    assert needs_of(calls) == expected


def test_chain_stays_on_its_branch() -> None:
    """Two chains have a branch each, and what joins them waits for the end of one of them."""
    needs: list[list[int]] = [[], [], [0], [1], [2], [3], [4, 5, 1]]
    branches = branches_of(needs, [True] * 7)
    assert branches == [0, 1, 0, 1, 0, 1, 1]
    assert waits_of(branches, needs, range(7)) == [[], [], [], [], [], [], [4]]
    assert waits_of(branches, needs, [0, 1, 4, 6]) == [[], [], [], [2]]
    assert branches_of([[], [], [0]], [True, True, True]) == [0, 1, 0]
    assert branches_of([[], [], [0]], [False, True, True]) == [0, 0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_all_that_meet_keep_their_order(seed: int) -> None:
    """By branches and waits each call follows all that it meets, whatever the decisions."""
    rng = np.random.default_rng(seed)

    def view() -> View:
        begin = int(rng.integers(3))
        return rows(int(rng.integers(12)), int(rng.integers(1, 5)), begin=begin, columns=4 - begin)

    calls = [
        call(
            [view() for _ in range(rng.integers(3))],
            [view() for _ in range(rng.integers(3))],
            is_opaque=bool(rng.random() < 0.03),
            decision=int(rng.integers(-1, 2)),
        )
        for _ in range(60)
    ]
    needs = needs_of(calls)
    branches = branches_of(needs, rng.random(60) < 0.9)
    assert max(branches) < MOST_BRANCHES
    decisions = [True, *(rng.random(2) < 0.5)]
    chosen = [k for k, each in enumerate(calls) if decisions[each.decision + 1]]
    waits = waits_of(branches, needs, chosen)
    follows: list[set[int]] = []
    for place, number in enumerate(chosen):
        own = [k for k in range(place) if branches[chosen[k]] == branches[number]]
        direct = {*waits[place], *own[-1:]}
        follows.append(direct.union(*(follows[k] for k in direct)))
    for a, b in combinations(range(len(chosen)), 2):
        assert a in follows[b] or not _meet(calls[chosen[a]], calls[chosen[b]])


def _meet(a: Accesses, b: Accesses) -> bool:
    pairs = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)]
    pairs += [(x, y) for x in a.reads for y in b.writes]
    return a.is_opaque or b.is_opaque or any(x.overlaps(y) for x, y in pairs)


NARROWING = Case(
    "type=TdnnComponent input-dim=5 output-dim=3 time-offsets=-1,0,1", 5, range(-1, 10), range(9)
)


def results(device: Any) -> list[np.ndarray]:
    """Outputs, derivatives and gradients of several runs."""
    computer = NARROWING.bound(device=device)
    return [array for seed in range(6) for array in passes(computer, seed)]


def are_close(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Whether values agree."""
    pairs = zip(some, others, strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-3) for a, b in pairs)


@needs_compiler
def test_each_missing_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of its waits the backward pass of a splice has wrong values on the host."""
    expected = results("cpu")
    made: list[tuple[int, int]] = []
    missing: tuple[int, int] | None = None

    def without(*of: Any) -> list[list[int]]:
        waits = waits_of(*of)
        made.extend((place, other) for place, each in enumerate(waits) for other in each)
        return [[k for k in each if (place, k) != missing] for place, each in enumerate(waits)]

    monkeypatch.setattr(segments, "waits_of", without)
    assert are_close(results(HostPlatform()), expected)
    found = [*made]
    assert found
    for missing in found:
        assert not are_close(results(HostPlatform()), expected), missing


class WorkspacesByBranch(HostPlatform):
    """A platform that notes which branches use which workspace of products."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[int, object] = {}
        self.used: dict[int, set[object]] = {}

    def workspace(self) -> object:
        """A new one."""
        return object()

    def gemm(self, product: Gemm, workspace: object = None) -> Call:
        """Notes the workspace of a product."""
        call = super().gemm(product)
        self.products[id(call)] = workspace
        return call

    def capture(self, calls: Sequence[Call], *on: Any) -> Call:
        """Notes the branches of products."""
        for made, branch in zip(calls, on[0], strict=True):
            if id(made) in self.products:
                self.used.setdefault(branch, set()).add(self.products[id(made)])
        return super().capture(calls, *on)


@needs_compiler
def test_branches_share_no_workspace() -> None:
    """Products of a branch share a workspace, and sums of columns that need one come out right."""
    platform = WorkspacesByBranch()
    machine, rng = DeviceMachine(platform), np.random.default_rng(0)
    sources = [rng.standard_normal((1000, 5), dtype=np.float32) for _ in range(8)]
    factor = rng.standard_normal((5, 5), dtype=np.float32)
    sums = [machine.zeros((5,), np.float32) for _ in sources]
    products = [machine.zeros((1000, 5), np.float32) for _ in sources]
    tape = machine.tape()
    for source, total, product in zip(sources, sums, products, strict=True):
        tape.product(source, factor, product)
        tape.column_sum(product, total)
    run = machine.finish(tape)

    for _ in range(4):
        run()
        machine.pull([*sums, *products])
        for source, total, product in zip(sources, sums, products, strict=True):
            np.testing.assert_allclose(product, source @ factor, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(total, product.sum(axis=0), rtol=1e-4, atol=1e-3)
    used = [*platform.used.values()]
    assert len(used) == MOST_BRANCHES
    assert all(len(each) == 1 for each in used)
    assert len(set.union(*used)) == MOST_BRANCHES
