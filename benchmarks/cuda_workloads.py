"""What `cuda.py` measures, in a process of its own: a network, by this package or by PyTorch.

    python benchmarks/cuda_workloads.py '{"network": "tdnnf", "mode": "train", "sequences": 64}'

prints what was measured as JSON, in the last line. `cuda.py` says what the numbers mean.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs
import numpy as np
from networks import BENCHMARKS
from peers.on_cuda import prepare

# What Python runs as a script has its folder searched first: `cuda.py` would hide NVIDIA's `cuda`.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

FIRST_STEPS, FIRST_SECONDS = 40, 0.3
"""Before anything is measured, at least. Natural gradient moves its estimates in each of the first
eleven steps, and each kind of step is run once and captured once: for the networks here that ends
with the seventeenth. Clocks need time to rise."""

CYCLE = 20
"""Steps after which natural gradient has done all that it does: its periods are 4 and 10."""

BLOCKS, BLOCK_SECONDS = 5, 0.05
"""So many blocks of so much time at least are measured; the result is their median."""

LARGEST_CHECK = 8
"""Sequences of the minibatches at most whose outputs are also computed on the processor."""


@attrs.frozen(kw_only=True)
class Case:
    """A measurement to be made.

    Attributes:
        runner: "nnet3", or a way of PyTorch's: "eager", "compile", "graph".
        network: A name of BENCHMARKS.
        mode: "infer" or "train".
        sequences: Minibatch size.
        precision: Of products.
        scale: Factor for hidden sizes.
        natural_gradient: Whether training uses it.
        one_stream: Whether captured graphs have one branch.
        dry_run: Whether the processor stands for the device.
    """

    runner: str = "nnet3"
    network: str
    mode: str
    sequences: int
    precision: str = "fp32"
    scale: float = 1.0
    natural_gradient: bool = True
    one_stream: bool = False
    dry_run: bool = False

    def __str__(self) -> str:
        """As lines about it begin."""
        return f"{self.network} {self.mode} n={self.sequences} {self.runner} {self.precision}"


@attrs.frozen(kw_only=True)
class Line:
    """The result of a measurement.

    Attributes:
        device: Its name.
        milliseconds: Of a run or step: the median over blocks of runs.
        spread: The largest less the least of the blocks, over the median.
        launch_microseconds: The processor's part.
        gigaflops: Of the products of a run or step.
        lstm_steps: Steps of LSTM layers that a run makes.
        megabytes: Of device memory, as the allocator of CuPy or PyTorch counts it.
        error: Largest difference of an output from the processor's, over the largest output; None
            if that was not looked at.
        seconds: All of it took, with imports and compilation.
    """

    device: str
    milliseconds: float
    spread: float = 0.0
    launch_microseconds: float
    gigaflops: float
    lstm_steps: int
    megabytes: float | None
    error: float | None = None
    seconds: float = 0.0


# ---- the least work ----


def products_flops(nnet: Any, computation: Any) -> float:
    """Floating-point operations of the products with parameters, 2 for each multiplication.

    What the mathematics asks for: each affine map, convolution or TDNN layer once in the forward
    pass, once for the derivative of its input if that is wanted, once for that of its parameters.
    Natural gradient, and nonlinearities, are not counted.
    """
    from nnet3_computation import commands as c

    rows = computation.submatrices[:, 2]
    total = 0
    for command in computation.commands:
        if isinstance(command, c.Propagate):
            total += int(rows[command.output]) * _weights(nnet.components[command.component])
        elif isinstance(command, c.Backprop | c.BackpropNoModelUpdate):
            updated = isinstance(command, c.Backprop) and computation.need_model_derivative
            times = bool(command.input_deriv) + updated
            weights = _weights(nnet.components[command.component])
            total += times * int(rows[command.output_deriv]) * weights
    return 2.0 * total


def _weights(component: Any) -> int:
    """Multiplications for one row of output."""
    matrix = getattr(component, "linear_params", None)
    if matrix is None:
        return 0
    # A convolution has one product for each of the heights of its output.
    return int(np.size(matrix)) * int(getattr(component, "height_out", 1))


def count_lstm_steps(nnet: Any, computation: Any) -> int:
    """How often the forward pass computes the nonlinearity of an LSTM layer."""
    from nnet3_computation import commands as c

    return sum(
        nnet.components[command.component].type == "LstmNonlinearityComponent"
        for command in computation.commands
        if isinstance(command, c.Propagate)
    )


# ---- measuring ----


@attrs.frozen(kw_only=True)
class Workload:
    """The work that one process repeats.

    Attributes:
        run: Queues one run or step.
        flops: Of its products.
        lstm_steps: That it makes.
        clock: Measures work that is queued.
        error: Against the processor; None if that was not looked at.
    """

    run: Callable[[], object]
    flops: float
    lstm_steps: int
    clock: Clock
    error: float | None = None


class Clock:
    """Time and memory of a CUDA device, through CuPy."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        cupy.empty(1)  # makes the context
        self.device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def wait(self) -> None:
        """Until the device has done everything."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def milliseconds(self, run: Callable[[], object], count: int) -> float:
        """The device's time for one of so many runs."""
        start, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        elapsed: float = self._cupy.cuda.get_elapsed_time(start, end)
        return elapsed / count

    def megabytes(self) -> float | None:
        """Device memory that CuPy's pool has taken."""
        return float(self._cupy.get_default_memory_pool().total_bytes()) / 1e6

    def array(self, values: np.ndarray) -> Any:
        """The values on the device."""
        return self._cupy.asarray(values)


class TorchClock(Clock):
    """The same through PyTorch."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.empty(1, device="cuda")  # makes the context
        self.device = torch.cuda.get_device_name()

    def wait(self) -> None:
        """Until the device has done everything."""
        self._torch.cuda.synchronize()

    def milliseconds(self, run: Callable[[], object], count: int) -> float:
        """The device's time for one of so many runs."""
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        elapsed: float = start.elapsed_time(end)
        return elapsed / count

    def megabytes(self) -> float | None:
        """The most device memory that PyTorch's allocator has taken."""
        return float(self._torch.cuda.max_memory_reserved()) / 1e6


class RehearsalClock(Clock):
    """The same on the processor."""

    def __init__(self, platform: Any = None) -> None:
        self._platform = platform
        self.device = "rehearsal on the processor"

    def wait(self) -> None:
        """Nothing is ever queued."""

    def milliseconds(self, run: Callable[[], object], count: int) -> float:
        """Wall time."""
        start = time.perf_counter()
        for _ in range(count):
            run()
        return 1e3 * (time.perf_counter() - start) / count

    def megabytes(self) -> float | None:
        """The bytes that the platform has allocated."""
        if self._platform is None:
            return None
        properties = self._platform.properties
        return float(properties.total_bytes - properties.free_bytes) / 1e6

    def array(self, values: np.ndarray) -> Any:
        """The values themselves."""
        return values


def nnet3_workload(case: Case) -> Workload:
    """This package."""
    from nnet3 import CachingCompiler
    from nnet3_descriptors import parse_config, set_test_mode
    from nnet3_runtime_cuda import DeviceNnet, NnetComputer
    from nnet3_runtime_cuda.cuda import branches

    if case.dry_run:
        sys.path.append(str(Path(__file__).parents[1] / "packages/nnet3-runtime-cuda/tests"))
        from emulated_device import HostPlatform

        device: Any = HostPlatform()
        clock: Clock = RehearsalClock(device)
    else:
        device, clock = "cuda", Clock()
    benchmark, rng = BENCHMARKS[case.network], np.random.default_rng(0)
    train = case.mode == "train"
    nnet = parse_config(benchmark.config(case.scale), rng=rng)
    nnet = nnet if train else set_test_mode(nnet)
    request = benchmark.request(case.sequences, train=train)
    computation = CachingCompiler(nnet).compile(request)
    options = {} if case.dry_run else {"precision": case.precision}
    if case.one_stream:
        branches.MOST_BRANCHES = 1
    trained = DeviceNnet(
        nnet,
        device=device,
        trainable=train,
        natural_gradient=train and case.natural_gradient,
        **options,
    )
    computer = NnetComputer(trained, computation)

    def values(ios: Any, factor: float) -> dict[str, Any]:
        shapes = {io.name: (len(io.indexes), nnet.node_dim(io.name)) for io in ios}
        return {
            name: clock.array(np.float32(factor) * rng.standard_normal(shape, dtype=np.float32))
            for name, shape in shapes.items()
        }

    inputs, derivatives = values(request.inputs, 1.0), values(request.outputs, 0.01)

    def run() -> None:
        computer.forward(inputs)
        if train:
            computer.backward(derivatives)
            trained.take_step()

    error = None
    if not train and case.sequences <= LARGEST_CHECK:
        found, on_host = computer.forward(inputs), NnetComputer(nnet, computation)
        expected = on_host.forward({name: on_the_host(array) for name, array in inputs.items()})
        error = max(
            float(np.abs(on_the_host(found[name]) - array).max() / np.abs(array).max())
            for name, array in expected.items()
        )
    return Workload(
        run=run,
        flops=products_flops(nnet, computation),
        lstm_steps=count_lstm_steps(nnet, computation),
        clock=clock,
        error=error,
    )


def on_the_host(array: Any) -> np.ndarray:
    """An array of NumPy or CuPy as one of NumPy."""
    return array if isinstance(array, np.ndarray) else array.get()


def torch_workload(case: Case) -> Workload:
    """The same network in PyTorch; training is plain gradient descent there."""
    from nnet3 import CachingCompiler
    from nnet3_descriptors import parse_config

    clock: Clock = RehearsalClock() if case.dry_run else TorchClock()
    benchmark, rng = BENCHMARKS[case.network], np.random.default_rng(0)
    nnet = parse_config(benchmark.config(case.scale), rng=rng)
    request = benchmark.request(case.sequences, train=case.mode == "train")

    def values(ios: Any, factor: float) -> dict[str, np.ndarray]:
        shapes = {
            io.name: (case.sequences, len(io.indexes) // case.sequences, nnet.node_dim(io.name))
            for io in ios
        }
        return {
            name: np.float32(factor) * rng.standard_normal(shape, dtype=np.float32)
            for name, shape in shapes.items()
        }

    run = prepare(
        case.runner,
        case.network,
        nnet,
        values(request.inputs, 1.0),
        values(request.outputs, 0.01) if case.mode == "train" else None,
        precision=case.precision,
        device="cpu" if case.dry_run else "cuda",
    )
    computation = CachingCompiler(nnet).compile(request)
    return Workload(
        run=run,
        flops=products_flops(nnet, computation),
        lstm_steps=count_lstm_steps(nnet, computation),
        clock=clock,
    )


@contextmanager
def locked(lock: IO[bytes] | None, *, alone: bool) -> Iterator[None]:
    """Work on the device: some processes prepare side by side, or one of them measures alone."""
    if lock is None:
        yield
        return
    import fcntl  # not on Windows

    fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def measure(case: Case, lock: IO[bytes] | None = None) -> Line:
    """Measures in this process, while no other process that has the lock uses the device."""
    begin = time.perf_counter()
    with locked(lock, alone=False):
        work = nnet3_workload(case) if case.runner == "nnet3" else torch_workload(case)
        work.run()  # compiles and loads kernels
        work.clock.wait()
    with locked(lock, alone=True):
        return measured(case, work, begin)


def measured(case: Case, work: Workload, begin: float) -> Line:
    """Measures work that is prepared."""
    clock, varies = work.clock, case.runner == "nnet3" and case.mode == "train"
    cycle = CYCLE if varies else 1
    first = FIRST_STEPS if varies else 5
    first, seconds = (2, 0.0) if case.dry_run else (first, FIRST_SECONDS)
    start, done = time.perf_counter(), 0
    while done < first or time.perf_counter() - start < seconds:
        work.run()
        clock.wait()
        done += 1
    least = 0.0 if case.dry_run else clock.milliseconds(work.run, cycle)
    count = 1 if case.dry_run else cycle * math.ceil(1e3 * BLOCK_SECONDS / (cycle * least))
    blocks = [clock.milliseconds(work.run, count) for _ in range(BLOCKS)]
    launches = []
    for _ in range(1 if case.dry_run else CYCLE):
        clock.wait()
        start = time.perf_counter()
        work.run()
        launches.append(time.perf_counter() - start)
    clock.wait()
    median = float(np.median(blocks))
    return Line(
        device=clock.device,
        milliseconds=median,
        spread=(max(blocks) - min(blocks)) / median,
        launch_microseconds=1e6 * float(np.median(launches)),
        gigaflops=work.flops / 1e9,
        lstm_steps=work.lstm_steps,
        megabytes=clock.megabytes(),
        error=work.error,
        seconds=time.perf_counter() - begin,
    )


def main() -> None:
    """Measures a case; the second argument, if there is one, is the file of the lock."""
    case = Case(**json.loads(sys.argv[1]))
    if len(sys.argv) == 2:
        line = measure(case)
    else:
        with Path(sys.argv[2]).open("rb") as lock:
            line = measure(case, lock)
    print(json.dumps(attrs.asdict(line)))


if __name__ == "__main__":
    main()
