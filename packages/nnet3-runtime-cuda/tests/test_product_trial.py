"""The trial of the algorithms of a product, with a stand-in for CuPy that keeps time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from nnet3_runtime_cuda.cuda.platform import product_trial
from nnet3_runtime_cuda.cuda.platform.cublaslt import CublasLtError
from nnet3_runtime_cuda.cuda.platform.platform import Gemm, Matrix

START = 1 << 20


class Device:
    """A device whose clock stands still, but for the products that run.

    Attributes:
        now: Milliseconds.
        held: The address that is allocated; None if there is none.
        has_memory: Whether an allocation succeeds.
    """

    def __init__(self, *, has_memory: bool = True) -> None:
        self.now = 0.0
        self.held: int | None = None
        self.has_memory = has_memory

    @property
    def cupy(self) -> Any:
        """The parts of CuPy that a trial uses."""
        stream = SimpleNamespace(ptr=7, synchronize=lambda: None)
        runtime = SimpleNamespace(
            CUDARuntimeError=MemoryError, malloc=self._malloc, free=self._free, memsetAsync=print
        )
        runtime.memsetAsync = lambda *_: None
        return SimpleNamespace(
            cuda=SimpleNamespace(
                get_current_stream=lambda: stream,
                runtime=runtime,
                Event=lambda: _Event(self),
                get_elapsed_time=lambda begin, end: end.time - begin.time,
            )
        )

    def _malloc(self, nbytes: int) -> int:
        if not self.has_memory:
            raise MemoryError
        self.held = START
        return START

    def _free(self, address: int) -> None:
        assert address == self.held
        self.held = None

    def choose(self, gemm: Gemm, milliseconds: list[float]) -> int:
        """The algorithm that a trial chooses; a negative time stands for a refusal."""

        def candidate(moved: Gemm, number: int) -> Any:
            def run(workspace: int, stream: int) -> None:
                assert stream == 7
                assert workspace >= START
                if milliseconds[number] < 0:
                    raise CublasLtError("cublasLtMatmul", 15, "not supported")
                self.now += milliseconds[number]

            return SimpleNamespace(run=run)

        return product_trial.fastest(
            gemm, candidate, len(milliseconds), cupy=self.cupy, workspace_bytes=64
        )


class _Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.time = 0.0

    def record(self, stream: Any) -> None:
        self.time = self._device.now

    def synchronize(self) -> None:
        pass


def product(size: int) -> Gemm:
    """A product of square matrices."""
    matrix = Matrix(address=0, stride=size)
    return Gemm(rows=size, columns=size, inner=size, a=matrix, b=matrix, out=matrix)


@pytest.mark.parametrize(
    ("milliseconds", "number"),
    [([5.0, 4.0, 6.0], 1), ([5.0, 4.9], 0), ([-1.0, 9.0, 8.0], 2), ([5.0, -1.0], 0)],
)
def test_fastest_wins(milliseconds: list[float], number: int) -> None:
    """The fastest is chosen, unless the first is as fast; refused ones are not."""
    device = Device()
    assert device.choose(product(512), milliseconds) == number
    assert device.held is None, "the memory is given back"


def test_small_products_take_the_first() -> None:
    """A small product is not tried, whatever it takes."""
    device = Device()
    assert device.choose(product(64), [5.0, 1.0]) == 0
    assert device.now == 0.0


def test_without_memory() -> None:
    """Without memory for a trial, the library's first choice is taken."""
    assert Device(has_memory=False).choose(product(512), [5.0, 1.0]) == 0


def test_operands_move_without_overlaps() -> None:
    """Operands of a trial have the alignment of the product's, and lie one behind another."""
    gemm = Gemm(
        rows=3,
        columns=5,
        inner=7,
        a=Matrix(address=1028, stride=8),
        b=Matrix(address=4096, stride=9, transposed=True, batch_stride=50),
        out=Matrix(address=264, stride=6),
        addend=Matrix(address=12, stride=5),
        batch=2,
    )
    moved, end = product_trial.elsewhere(gemm, 2048)
    assert moved.addend is not None
    assert gemm.addend is not None
    assert [m.address for m in (moved.a, moved.b, moved.out, moved.addend)] == [
        2052,  # 2 rows of 8, then 7 elements: 92 bytes
        2304,  # 4 rows of 9, then 7, after another 50: 372 bytes
        2816 + 8,  # 2 rows of 6, then 5: 68 bytes
        3072 + 12,
    ]
    assert end == 3328
    kept = {name: getattr(gemm, name) for name in ("a", "b", "out", "addend")}
    assert attrs.evolve(moved, **kept) == gemm
