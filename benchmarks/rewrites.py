"""The effect of each rewrite between a computation and its calls.

    OPENBLAS_NUM_THREADS=1 python benchmarks/rewrites.py                       # all networks
    OPENBLAS_NUM_THREADS=1 python benchmarks/rewrites.py --network tdnn-lstm --mode train

A cell is the time of the whole program divided by that of the program without one rewrite: 0.90
means that the rewrite saves a tenth. The two programs alternate, on one thread; the cell is the
median of the ratios of single turns, of processor time. "-" means that the rewrite changes nothing
in this program: the calls are the same functions on as much memory. In training, a turn is a
forward and a backward pass, without the natural gradient and without changing the parameters.

early products     the input's part of recurrent layers, for many steps at once
late products      the derivative of that input, also for many steps at once
step panels        factors of steps, laid out in panels once for all steps
splices            affine layers that read several frames read the rows from the copies' source,
                   and add to the source's derivatives directly
pending zeros      the first addition to zeros sets instead
panels             parameters laid out for products of few rows
tiles              several frames computed together with fewer products
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import attrs
from kaldi import REQUESTS
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_computation import NnetComputation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import products
from nnet3_runtime_cuda.cpu.products import PANELS, TILES, Switch
from nnet3_runtime_cuda.lowering import lower, plan
from nnet3_runtime_cuda.lowering.areas import PendingZeros
from workload import Call, Workload, chosen, flat

TURNS, SECONDS = 11, 3.0
"""The least number of turns, and the least time of all turns in seconds."""

Change = Callable[[], AbstractContextManager[None]]


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Makes programs use another function, within the context."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def switched_off(switch: Switch) -> Iterator[None]:
    """Makes programs with a switch at "0", within the context."""
    products.panels_are_faster.cache_clear()
    try:
        with chosen(switch, "0"):
            yield
    finally:
        products.panels_are_faster.cache_clear()


@contextmanager
def without_rules(**found: object) -> Iterator[None]:
    """Makes plans with rules that find nothing, within the context."""
    with ExitStack() as stack:
        for name, nothing in found.items():
            stack.enter_context(replaced(plan, name, lambda *_, nothing=nothing: nothing))
        yield


REWRITES: dict[str, Change] = {
    "early products": partial(without_rules, known_inputs=()),
    "late products": partial(without_rules, deferred_derivatives=()),
    "step panels": partial(without_rules, step_panels=({}, {}, ())),
    "splices": partial(
        without_rules, spliced_inputs=({}, frozenset(), frozenset()), spliced_derivatives=()
    ),
    "pending zeros": partial(replaced, PendingZeros, "take", lambda *_: False),
    "panels": partial(switched_off, PANELS),
    "tiles": partial(switched_off, TILES),
}


@attrs.frozen
class Made:
    """A bound program.

    Attributes:
        run: Runs it once.
        form: The names of the called functions, and the bytes of matrices and scratch memory.
    """

    run: Call
    form: tuple[object, ...]


def made(work: Workload, computation: NnetComputation) -> Made:
    """Binds a computation."""
    device = DeviceNnet(work.nnet, trainable=work.is_training, natural_gradient=False)
    computer = NnetComputer(device, computation, threads=1)
    calls = (
        call for part in lower(device, computation, is_alone=True).segments for call in part.calls
    )
    functions = tuple(
        getattr(call.func if isinstance(call, partial) else call, "__qualname__", repr(type(call)))
        for call in calls
    )
    inputs, derivatives = flat(work.inputs), flat(work.derivatives)

    def run() -> None:
        computer.forward(inputs)
        if work.is_training:
            computer.backward(derivatives)

    return Made(run, (functions, computer.memory_bytes))


def seconds(run: Call, repetitions: int) -> float:
    """Processor seconds of several runs."""
    start = time.thread_time()
    for _ in range(repetitions):
        run()
    return time.thread_time() - start


def ratio(whole: Call, without: Call) -> float:
    """The time of one program, divided by that of the other."""
    for run in (whole, without):
        run()
    repetitions = max(1, round(0.05 / max(1e-4, seconds(whole, 1))))
    ratios, end = [], time.monotonic() + SECONDS
    while len(ratios) < TURNS or time.monotonic() < end:
        ratios.append(seconds(whole, repetitions) / seconds(without, repetitions))
    return statistics.median(ratios)


def cells(work: Workload) -> Iterator[str]:
    """The cells of a row of the table."""
    computation = CachingCompiler(work.nnet).compile(work.request)
    whole = made(work, computation)
    for change in REWRITES.values():
        with change():
            without = made(work, computation)
        yield "-" if without.form == whole.form else f"{ratio(whole.run, without.run):.2f}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", action="append", choices=BENCHMARKS, help="default: all")
    parser.add_argument("--mode", action="append", choices=("infer", "train"), help="default: both")
    arguments = parser.parse_args()
    print(f"| network | case | {' | '.join(REWRITES)} |")
    print("|---" * (len(REWRITES) + 2) + "|")
    for network, mode, sequences in REQUESTS:
        if network in (arguments.network or BENCHMARKS) and mode in (arguments.mode or [mode]):
            row = cells(Workload.make(network, mode, sequences))
            print(f"| {network} | {mode} n={sequences} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
