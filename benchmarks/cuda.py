"""How fast the benchmark networks run and train on a CUDA device, and how near to its limits.

    python benchmarks/cuda.py                                       # all, n = 64, 8, 1, 128, fp32
    python benchmarks/cuda.py --network tdnnf --n 64 --precision tf32 --peers
    python benchmarks/cuda.py --peers --out cuda.jsonl --seconds 560    # go on with the same call
    python benchmarks/cuda.py --dry-run --scale 0.0625 --n 2        # without a GPU: does it run?

Each line is measured in a process of its own, by `cuda_workloads.py`. Inputs, derivatives and
outputs stay on the device. A training step is forward and backward pass with natural gradient and
the change of the parameters; its mean is taken over steps of which one in four updates the
estimates of the Fisher matrices, as in a long training run (`--no-natural-gradient` for the plain
gradient, which peers compute).

============ ======================================================================================
column       meaning
============ ======================================================================================
ms           of a run or training step, between CUDA events, median over blocks of many
+-           the largest less the least of these blocks, over the median
frames/s     input frames of all sequences, context included, per second
of floor     time that the products alone take at the device's peak for the precision, over ms
launch, us   the processor's time to queue a run or step
us per LSTM  step: ms over the number of LSTM steps of all layers, the rest of the network included
memory, MB   of the device, the most that the allocator of CuPy or PyTorch has taken
off          largest difference of an output from the processor's, over the largest output: of this
             package, inference, up to 8 sequences
============ ======================================================================================

Several processes prepare side by side: they compile and load kernels. Then each of them measures
alone, while the others wait. Results are added to the file that --out names, one JSON object on
each line, failures too. Cases in the file are not measured again, unless they failed.

With --dry-run the kernels run on the processor (built by a C++ compiler), to see whether everything
works; times then mean nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
from cuda_workloads import Case, Line
from networks import BENCHMARKS
from peers.on_cuda import RUNNERS

SIZES = (64, 8, 1, 128)
"""What is wanted most comes first."""

PRECISIONS = ("fp32", "tf32", "bf16", "fp32x3")
MODES = ("infer", "train")

PEAK_TFLOPS = {
    "H200": {"fp32": 67.0, "tf32": 495.0, "bf16": 989.0, "fp32x3": 165.0},
    "H100": {"fp32": 67.0, "tf32": 495.0, "bf16": 989.0, "fp32x3": 165.0},
    "A100": {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp32x3": 52.0},
}
"""Dense peaks of NVIDIA's data sheets (SXM), by a word in the name of the device; of fp32x3, which
makes three products, a third of TF32's."""

WORKLOADS = Path(__file__).with_name("cuda_workloads.py")


class Deadline:
    """When to stop.

    Attributes:
        case_seconds: Largest number of seconds for one case.
    """

    def __init__(self, seconds: float, case_seconds: float) -> None:
        """Starts to count."""
        self._end = time.monotonic() + seconds
        self.case_seconds = case_seconds

    def left(self) -> float:
        """Seconds that the next case may take; not positive if there are none."""
        return min(self._end - time.monotonic(), self.case_seconds)


def run_apart(case: Case, deadline: Deadline, lock: Path | None) -> Line | str | None:
    """Runs a case in a process of its own.

    Returns:
        The measurements; the last line of its error if it fails; None if no time was left.
    """
    seconds = deadline.left()
    if seconds <= 0:
        return None
    command = [sys.executable, str(WORKLOADS), json.dumps(attrs.asdict(case))]
    command += [str(lock)] if lock else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"took more than {seconds:.0f} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return reason_of(done.stderr) or f"ended with status {done.returncode}"
    return Line(**json.loads(lines[-1]))


def reason_of(stderr: str) -> str:
    """The last line that names an error, or the last of all."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Failed)\b", line)]
    return (errors or lines or [""])[-1]


# ---- the file ----


def record(case: Case, result: Line | str) -> str:
    """A line of the file."""
    what = {"error": result} if isinstance(result, str) else {"line": attrs.asdict(result)}
    return json.dumps({"case": attrs.asdict(case), **what})


def known(path: Path | None) -> dict[Case, Line]:
    """The contents of a file."""
    if path is None or not path.exists():
        return {}
    entries = [json.loads(text) for text in path.read_text().splitlines()]
    return {Case(**e["case"]): Line(**e["line"]) for e in entries if "line" in e}


# ---- the table ----

HEADER = (
    "| network | case | n | runner | precision | ms | +- | frames/s | of floor | launch, us "
    "| us per LSTM step | memory, MB | off |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
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
    cells = (
        case.network,
        case.mode,
        case.sequences,
        case.runner,
        case.precision,
        f"{line.milliseconds:.3f}",
        f"{line.spread:.0%}",
        f"{frames / line.milliseconds * 1e3:,.0f}",
        "-" if math.isnan(share) else f"{share:.0%}",
        f"{line.launch_microseconds:.0f}",
        per_step,
        "-" if line.megabytes is None else f"{line.megabytes:,.0f}",
        "-" if line.error is None else f"{line.error:.0e}",
    )
    return f"| {' | '.join(map(str, cells))} |"


# ---- which cases ----


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All cases of the command line, in the order of measurement."""
    runners = arguments.runner or (("nnet3", *RUNNERS) if arguments.peers else ("nnet3",))
    precisions = arguments.precision or ("fp32",)
    for sequences, precision, runner, mode, network in itertools.product(
        arguments.n or SIZES,
        precisions,
        runners,
        arguments.mode or MODES,
        arguments.network or BENCHMARKS,
    ):
        if precision == "fp32x3" and runner != "nnet3":
            continue  # PyTorch has no such products
        yield Case(
            runner=runner,
            network=network,
            mode=mode,
            sequences=sequences,
            precision=precision,
            scale=arguments.scale,
            natural_gradient=not arguments.no_natural_gradient,
            one_stream=arguments.one_stream,
            dry_run=arguments.dry_run,
        )


def check_device(dry_run: bool) -> None:
    """Ends the program with one line if nothing can be measured here."""
    program = "from emulated_device import HostPlatform; HostPlatform().build('', [])"
    if not dry_run:
        program = "from nnet3_runtime_cuda.cuda.machine import open_platform; open_platform('cuda')"
    tests = str(Path(__file__).parents[1] / "packages/nnet3-runtime-cuda/tests")
    path = f"import sys; sys.path.append({tests!r})"
    # A process of its own, whose path lacks this folder: its cuda.py hides NVIDIA's.
    command = [sys.executable, "-c", f"{path}; {program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"benchmarks/cuda.py: {reason_of(done.stderr).partition(': ')[2]}")


def main() -> None:
    """Reads the command line, measures, prints a table."""
    parser = argparse.ArgumentParser(description="Measure the benchmark networks on a CUDA device.")
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: both")
    parser.add_argument("--n", action="append", type=int, help="minibatch; default: 64 8 1 128")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: fp32")
    parser.add_argument("--no-natural-gradient", action="store_true")
    parser.add_argument("--one-stream", action="store_true", help="no branches of graphs")
    parser.add_argument("--peers", action="store_true", help="PyTorch beside this package")
    parser.add_argument("--runner", action="append", choices=("nnet3", *RUNNERS))
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the hidden sizes")
    parser.add_argument("--peak-tflops", type=float, help="of a device that is not known here")
    parser.add_argument("--out", type=Path, help="file to add results to, and to go on from")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all of it")
    parser.add_argument("--case-seconds", type=float, default=240.0, help="for each case")
    parser.add_argument("--jobs", type=int, help="processes that prepare side by side")
    parser.add_argument("--dry-run", action="store_true", help="on the processor, to see it work")
    arguments = parser.parse_args()
    deadline = Deadline(arguments.seconds, arguments.case_seconds)
    check_device(arguments.dry_run)
    jobs = min(8, os.cpu_count() or 1) if arguments.jobs is None else arguments.jobs
    jobs = 1 if arguments.dry_run else max(jobs, 1)
    done, failed = known(arguments.out), False
    print(HEADER)
    with (
        tempfile.NamedTemporaryFile() as file,
        ThreadPoolExecutor(jobs) as pool,
    ):
        lock = Path(file.name) if jobs > 1 else None

        def result_of(case: Case) -> Line | str | None:
            return done.get(case) or run_apart(case, deadline, lock)

        chosen = list(cases(arguments))
        for case, result in zip(chosen, pool.map(result_of, chosen), strict=True):
            if isinstance(result, Line):
                print(row(case, result, arguments.peak_tflops), flush=True)
            else:
                failed = True
                print(f"{case}: {result or 'no time was left'}", file=sys.stderr, flush=True)
            if arguments.out and result and case not in done:
                with arguments.out.open("a") as out:
                    out.write(record(case, result) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
