"""The cost for the processor of a run or a training step on a device, apart from CUDA's own calls.

    python benchmarks/cuda_host_cost.py
    python benchmarks/cuda_host_cost.py --network tdnnf --n 64 --profile

No device is needed: the package runs as on a device (checks of arguments, decisions of the host,
uploads, replays), with a CuPy whose functions return at once. So these are the microseconds that
the package adds to the time of CuPy and the driver for the counted calls: launches of graphs,
copies between host and device, and copies on the device.

Times are of the processor, the minimum of several rounds. Inputs and derivatives are arrays on the
device, and so are outputs. Training is forward and backward pass with natural gradient and the
change of the parameters.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import functools
import pstats
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_descriptors import parse_config, set_test_mode
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform

FIRST_STEPS = 24
"""Natural gradient updates its estimates in each of the first ten steps."""

ROUNDS, STEPS = 15, 40
"""One step in four updates the estimates."""


class IdleArray:
    """An array on a device that does not exist."""

    def __init__(self, shape: tuple[int, ...], *_: object, **__: object) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(np.float32)
        self.size, self.nbytes = int(np.prod(shape)), 4 * int(np.prod(shape))
        self.device = SimpleNamespace(id=0)
        self.data = SimpleNamespace(ptr=1 << 20)

    def __dlpack_device__(self) -> tuple[int, int]:
        """CUDA's first device."""
        return 2, 0


class IdleStream:
    """A stream that does nothing."""

    ptr = 1

    def __enter__(self) -> IdleStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin_capture(self) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""


class IdleCupy:
    """As much of CuPy as the package uses; counts calls, and does nothing.

    Attributes:
        calls: How often each was made.
    """

    ndarray = IdleArray

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._next = 1 << 30
        self.empty = functools.cache(lambda shape, dtype: IdleArray(shape))
        stream = IdleStream()
        graph = SimpleNamespace(upload=_nothing, launch=self._counted("graphs"))
        stream.end_capture = lambda: graph  # type: ignore[attr-defined]
        runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            memoryTypeUnregistered=0,
            pointerGetAttributes=lambda _: SimpleNamespace(type=0),
            memcpyAsync=self._counted("copies"),
            memsetAsync=_nothing,
            deviceSynchronize=_nothing,
            getDeviceProperties=lambda _: {
                "name": b"idle",
                "major": 9,
                "minor": 0,
                "multiProcessorCount": 132,
            },
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=RuntimeError),
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            compiler=SimpleNamespace(CompileException=ValueError),
            Device=self._device,
            Stream=lambda **_: stream,
            get_current_stream=lambda: stream,
            alloc=self._alloc,
        )

    def _counted(self, name: str) -> Callable[..., None]:
        calls = self.calls

        def run(*_: object, **__: object) -> None:
            calls[name] += 1

        return run

    def _device(self, _: int) -> Any:
        return _IdleDevice()

    def _alloc(self, nbytes: int) -> Any:
        address, self._next = self._next, self._next + -(-nbytes // 256) * 256
        return SimpleNamespace(ptr=address)

    def get_default_memory_pool(self) -> Any:
        """A pool without limit."""
        return SimpleNamespace(free_bytes=lambda: 0, get_limit=lambda: 0, used_bytes=lambda: 0)

    def ascontiguousarray(self, array: IdleArray, dtype: Any) -> IdleArray:
        """Itself."""
        return array

    def RawModule(self, **_: object) -> Any:  # noqa: N802
        """A module whose kernels do nothing."""
        return SimpleNamespace(compile=_nothing, get_function=lambda _: _nothing)


class _IdleDevice(IdleStream):
    mem_info = 1 << 50, 1 << 50


def _nothing(*_: object, **__: object) -> None:
    pass


class IdleCublasLt(ctypes.CDLL):
    """libcublasLt, with functions that succeed and do nothing."""

    def __init__(self) -> None:
        """Loads nothing."""
        self._name, self._handle = "idle", 0

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            if name == "cublasLtMatmulAlgoGetHeuristic":
                arguments[-1]._obj.value = 1
            return 0

        setattr(self, name, function)
        return function


@attrs.frozen
class Work:
    """A subject of measurement.

    Attributes:
        run: A run or a training step.
        cupy: Counts the calls.
    """

    run: Callable[[], object]
    cupy: IdleCupy


def work_of(name: str, sequences: int, *, train: bool) -> Work:
    """A run of a benchmark network, or a training step."""
    nnet = parse_config(BENCHMARKS[name].config(), rng=np.random.default_rng(0))
    nnet = nnet if train else set_test_mode(nnet)
    request = BENCHMARKS[name].request(sequences, train=train)
    cupy = IdleCupy()
    trained = DeviceNnet(
        nnet,
        device=CupyPlatform(cupy, IdleCublasLt(), 0),
        trainable=train,
        natural_gradient=train,
    )
    computer = NnetComputer(trained, CachingCompiler(nnet).compile(request))

    def arrays(ios: Any) -> dict[str, Any]:
        return {io.name: IdleArray((len(io.indexes), nnet.node_dim(io.name))) for io in ios}

    inputs, derivatives = arrays(request.inputs), arrays(request.outputs)

    def run() -> None:
        computer.forward(inputs)
        if train:
            computer.backward(derivatives)
            trained.take_step()

    return Work(run, cupy)


def microseconds(run: Callable[[], object]) -> float:
    """The processor's time of a run: the mean over a few, the least of several rounds."""
    for _ in range(FIRST_STEPS):
        run()
    rounds = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(STEPS):
            run()
        rounds.append((time.thread_time() - start) / STEPS)
    return 1e6 * min(rounds)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=sorted(BENCHMARKS), action="append")
    parser.add_argument("--n", type=int, default=64, help="sequences")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    arguments = parser.parse_args()
    print("| case | us | graphs | copies |\n|---|---|---|---|")
    for name in arguments.network or sorted(BENCHMARKS):
        for train in (False, True):
            work = work_of(name, arguments.n, train=train)
            cost = microseconds(work.run)
            work.cupy.calls.clear()
            work.run()
            calls = work.cupy.calls
            case = "training step" if train else "inference"
            print(f"| {name} {case} | {cost:.0f} | {calls['graphs']} | {calls['copies']} |")
            if arguments.profile:
                profile = cProfile.Profile()
                profile.enable()
                for _ in range(STEPS):
                    work.run()
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
