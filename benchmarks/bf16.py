"""What bfloat16 products save on a processor with AMX, and what they cost in accuracy.

    OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/bf16.py

For each benchmark network: processor time of a run in float32 and in bfloat16, both with MKL, and
the difference of their outputs: the largest relative to the largest output, and root mean squares.
"""

from __future__ import annotations

import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from workload import CLOCKS, Workload, flat


def print_line(name: str, sequences: int) -> None:
    """Measures one network."""
    work = Workload.make(name, "infer", sequences)
    computation = CachingCompiler(work.nnet).compile(work.request)
    inputs = flat(work.inputs)
    times, outputs = [], []
    for precision in ("fp32", "bf16"):
        computer = NnetComputer(DeviceNnet(work.nnet, precision=precision), computation)
        outputs.append(computer.forward(inputs)["output"].astype(np.float64))
        times.append(work.time(lambda run=computer: run.forward(inputs), CLOCKS["cpu"]))
    exact, rough = outputs
    largest = np.abs(rough - exact).max() / np.abs(exact).max()
    root_mean_square = np.sqrt(((rough - exact) ** 2).mean() / (exact**2).mean())
    print(
        f"| {name} | n={sequences} | {times[0]:.1f} | {times[1]:.1f} | {times[1] / times[0]:.2f} "
        f"| {largest:.1e} | {root_mean_square:.1e} |",
        flush=True,
    )


def main() -> None:
    """Prints the table."""
    print("| network | case | fp32, ms | bf16, ms | ratio | largest error | rms error |")
    print("|---|---|---|---|---|---|---|")
    for name in BENCHMARKS:
        for sequences in (1, 8):
            print_line(name, sequences)


if __name__ == "__main__":
    main()
