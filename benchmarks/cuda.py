"""How fast the benchmark networks run and train on a CUDA device, and how near to its limits.

    python benchmarks/cuda.py                                       # all, n = 1, 8, 64, 128, fp32
    python benchmarks/cuda.py --network tdnnf --n 64 --precision tf32 --peers
    python benchmarks/cuda.py --dry-run --scale 0.0625 --n 2        # without a GPU: does it run?

Each line is measured in a process of its own. Inputs, derivatives and outputs stay on the device. A
training step is forward and backward pass with natural gradient and the change of the parameters;
its mean is taken over steps of which one in four updates the estimates of the Fisher matrices, as
in a long training run (`--no-natural-gradient` for the plain gradient, which peers compute).

============ ======================================================================================
column       meaning
============ ======================================================================================
ms           of a run or training step, between CUDA events, mean over many
frames/s     input frames of all sequences, context included, per second
of floor     time that the products alone take at the device's peak for the precision, over ms
launch, us   the processor's time to queue a run or step
us per LSTM  step: ms over the number of LSTM steps of all layers, the rest of the network included
memory, MB   of the device, taken by this process beyond what a CUDA context with CuPy takes
============ ======================================================================================

With --dry-run the kernels run on the processor (built by a C++ compiler): times mean nothing then,
but for whether everything works.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from networks import BENCHMARKS
from peers.on_cuda import RUNNERS, prepare

# What Python runs as a script has its folder searched first: this file would hide NVIDIA's `cuda`.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

SIZES = (1, 8, 64, 128)
PRECISIONS = ("fp32", "tf32", "bf16")
MODES = ("infer", "train")
FIRST_STEPS = 12
"""Natural gradient updates its estimates in each of the first ten steps; graphs are made in two."""

STEPS = 20
"""A multiple of four: one step in four updates the estimates."""

PEAK_TFLOPS = {
    "H200": {"fp32": 67.0, "tf32": 495.0, "bf16": 989.0},
    "H100": {"fp32": 67.0, "tf32": 495.0, "bf16": 989.0},
    "A100": {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0},
}
"""Dense peaks of NVIDIA's data sheets (SXM), by what the name of the device contains."""


@attrs.frozen(kw_only=True)
class Case:
    """What is measured.

    Attributes:
        runner: "nnet3", or what PyTorch does: "eager", "compile", "graph".
        network: A name of BENCHMARKS.
        mode: "infer" or "train".
        sequences: Minibatch size.
        precision: Of products.
        scale: Factor for hidden sizes.
        natural_gradient: Whether training uses it.
        dry_run: Whether the processor stands for the device.
    """

    runner: str = "nnet3"
    network: str
    mode: str
    sequences: int
    precision: str = "fp32"
    scale: float = 1.0
    natural_gradient: bool = True
    dry_run: bool = False


@attrs.frozen(kw_only=True)
class Line:
    """What was measured.

    Attributes:
        device: Its name.
        milliseconds: Of a run or step.
        launch_microseconds: The processor's part.
        gigaflops: Of the products of a run or step.
        lstm_steps: Steps of LSTM layers that a run makes.
        megabytes: Of device memory.
    """

    device: str
    milliseconds: float
    launch_microseconds: float
    gigaflops: float
    lstm_steps: int
    megabytes: float


# ---- the least work ----


def products_flops(nnet: Any, computation: Any) -> float:
    """Floating-point operations of the products with parameters, 2 for each multiplication.

    What the mathematics asks for: each affine map, convolution or TDNN layer once in the forward
    pass, once for the derivative of its input if that is wanted, once for that of its parameters.
    Natural gradient, and nonlinearities, are not counted.
    """
    from nnet3_compiler import commands as c

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
    from nnet3_compiler import commands as c

    return sum(
        nnet.components[command.component].type == "LstmNonlinearityComponent"
        for command in computation.commands
        if isinstance(command, c.Propagate)
    )


# ---- measuring ----


@attrs.frozen(kw_only=True)
class Workload:
    """What one process runs again and again.

    Attributes:
        run: Queues one run or step.
        flops: Of its products.
        lstm_steps: That it makes.
        clock: Measures work that is queued.
    """

    run: Callable[[], object]
    flops: float
    lstm_steps: int
    clock: Clock


class Clock:
    """Time and memory of a CUDA device, through CuPy."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        cupy.empty(1)  # makes the context
        self._free_before = cupy.cuda.Device().mem_info[0]
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

    def megabytes(self) -> float:
        """Device memory that is gone since the beginning."""
        return float(self._free_before - self._cupy.cuda.Device().mem_info[0]) / 1e6

    def array(self, values: np.ndarray) -> Any:
        """The values on the device."""
        return self._cupy.asarray(values)


class TorchClock(Clock):
    """The same through PyTorch."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.empty(1, device="cuda")  # makes the context
        self._free_before = torch.cuda.mem_get_info()[0]
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

    def megabytes(self) -> float:
        """Device memory that is gone since the beginning."""
        return float(self._free_before - self._torch.cuda.mem_get_info()[0]) / 1e6


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

    def megabytes(self) -> float:
        """What the platform gave out."""
        if self._platform is None:
            return math.nan
        properties = self._platform.properties
        return float(properties.total_bytes - properties.free_bytes) / 1e6

    def array(self, values: np.ndarray) -> Any:
        """The values themselves."""
        return values


def nnet3_workload(case: Case) -> Workload:
    """This package."""
    from nnet3_descriptors import parse_config, set_test_mode
    from nnet3_optimizer import CachingCompiler
    from nnet3_runtime_cuda import DeviceNnet, NnetComputer

    if case.dry_run:
        from nnet3_runtime_cuda.cuda.host import HostPlatform

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

    return Workload(
        run=run,
        flops=products_flops(nnet, computation),
        lstm_steps=count_lstm_steps(nnet, computation),
        clock=clock,
    )


def torch_workload(case: Case) -> Workload:
    """The same network in PyTorch; training is plain gradient descent there."""
    from nnet3_descriptors import parse_config
    from nnet3_optimizer import CachingCompiler

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


def measure(case: Case) -> Line:
    """Measures in this process."""
    work = nnet3_workload(case) if case.runner == "nnet3" else torch_workload(case)
    first, steps = (2, 1) if case.dry_run else (FIRST_STEPS, STEPS)
    for _ in range(first):
        work.run()
    work.clock.wait()
    milliseconds = work.clock.milliseconds(work.run, steps)
    launches = []
    for _ in range(steps):
        work.clock.wait()
        start = time.perf_counter()
        work.run()
        launches.append(time.perf_counter() - start)
    work.clock.wait()
    return Line(
        device=work.clock.device,
        milliseconds=milliseconds,
        launch_microseconds=1e6 * float(np.median(launches)),
        gigaflops=work.flops / 1e9,
        lstm_steps=work.lstm_steps,
        megabytes=work.clock.megabytes(),
    )


def measure_apart(case: Case) -> Line | str:
    """Measures in a process of its own; the last line of its error if it fails."""
    command = [sys.executable, __file__, "--child", json.dumps(attrs.asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd())
    if done.returncode:
        return (done.stderr.strip() or "failed").splitlines()[-1]
    return Line(**json.loads(done.stdout))


# ---- the table ----

HEADER = (
    "| network | case | n | runner | precision | ms | frames/s | of floor | launch, us "
    "| us per LSTM step | memory, MB |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def row(case: Case, line: Line, peak_tflops: float | None) -> str:
    """A line of the table."""
    frames = case.sequences * len(BENCHMARKS[case.network].input_times)
    peak = peak_tflops or next(
        (peaks[case.precision] for name, peaks in PEAK_TFLOPS.items() if name in line.device),
        math.nan,
    )
    steps = line.lstm_steps
    per_step = f"{1e3 * line.milliseconds / steps:.1f}" if steps else "-"
    share = line.gigaflops / peak / line.milliseconds
    return (
        f"| {case.network} | {case.mode} | {case.sequences} | {case.runner} | {case.precision} "
        f"| {line.milliseconds:.3f} | {frames / line.milliseconds * 1e3:,.0f} "
        f"| {'-' if math.isnan(share) else f'{share:.0%}'} | {line.launch_microseconds:.0f} "
        f"| {per_step} | {line.megabytes:,.0f} |"
    )


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All that the command line asks for."""
    for network in arguments.network or BENCHMARKS:
        for mode in arguments.mode or MODES:
            for sequences in arguments.n or SIZES:
                for precision, runner in itertools.product(
                    arguments.precision or ("fp32",),
                    ("nnet3", *RUNNERS) if arguments.peers else ("nnet3",),
                ):
                    yield Case(
                        runner=runner,
                        network=network,
                        mode=mode,
                        sequences=sequences,
                        precision=precision,
                        scale=arguments.scale,
                        natural_gradient=not arguments.no_natural_gradient,
                        dry_run=arguments.dry_run,
                    )


def check_device(dry_run: bool) -> None:
    """Ends the program with one line if nothing can be measured here."""
    from nnet3_runtime_cuda import DeviceError

    try:
        if dry_run:
            from nnet3_runtime_cuda.cuda.host import HostPlatform

            HostPlatform().build("", [])
        else:
            from nnet3_runtime_cuda.cuda.devices import open_platform

            open_platform("cuda")
    except DeviceError as error:
        sys.exit(f"benchmarks/cuda.py: {error}")


def main() -> None:
    """Reads the command line; with --child, measures and prints JSON."""
    parser = argparse.ArgumentParser(description="Measure the benchmark networks on a CUDA device.")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both")
    parser.add_argument("--n", action="append", type=int, help="minibatch; default: 1 8 64 128")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: fp32")
    parser.add_argument("--no-natural-gradient", action="store_true")
    parser.add_argument("--peers", action="store_true", help="PyTorch beside this package")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the hidden sizes")
    parser.add_argument("--peak-tflops", type=float, help="of a device that is not known here")
    parser.add_argument("--dry-run", action="store_true", help="on the processor, to see it work")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(attrs.asdict(measure(Case(**json.loads(arguments.child))))))
        return
    check_device(arguments.dry_run)
    print(HEADER)
    failed = False
    for case in cases(arguments):
        line = measure_apart(case)
        if isinstance(line, str):
            failed = True
            print(
                f"{case.network} {case.mode} n={case.sequences} {case.runner}: {line}",
                file=sys.stderr,
            )
        else:
            print(row(case, line, arguments.peak_tflops), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
