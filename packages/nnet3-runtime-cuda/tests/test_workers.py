"""Threads that share the work of a program."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from computations import assert_near, passes, request
from hypothesis import given
from hypothesis import strategies as st
from nnet3 import CachingCompiler
from nnet3_descriptors import Limits, Nnet, current_limits, use_limits
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import threads as workers_module
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.operations.scratch import even_parts, parts_of_at_most
from small_networks import network, stacked

FRAMES = 900

CONFIG = stacked(
    40,
    "up Tdnn input-dim=40 output-dim=600 time-offsets=-1,0,1",
    "relu RectifiedLinear dim=600 self-repair-scale=1.0e-5",
    "norm BatchNorm dim=600",
    "last NaturalGradientAffine input-dim=600 output-dim=500 "
    "input=Sum(Scale(0.5, norm), Offset(relu, 1))",
    "softmax LogSoftmax dim=500",
)


def test_share_runs_on_another_thread() -> None:
    """A share that waits for another share to begin can end."""
    workers, meeting, seen = Workers(2), threading.Barrier(2), []

    def meet() -> None:
        meeting.wait(timeout=10.0)
        seen.append(threading.current_thread().name)

    workers.run([[meet], [meet]])

    assert "nnet3-worker" in seen
    assert len(seen) == 2


@pytest.mark.parametrize("guilty", [0, 1])
def test_errors_are_raised(guilty: int) -> None:
    """An error in a call is raised to the caller, the other share is done, and workers go on."""
    workers, done = Workers(2), []
    shares: list[list[Callable[[], object]]] = [[partial(done.append, k)] for k in range(2)]
    shares[guilty] = [partial(int, "no number")]

    with pytest.raises(ValueError, match="invalid literal for int"):
        workers.run(shares)
    assert done == [1 - guilty]

    workers.run([[partial(done.append, 2)], [partial(done.append, 3)]])
    assert sorted(done[1:]) == [2, 3]


def test_side_by_side() -> None:
    """Tasks run on all threads, in any number, each once, with the limits of the caller."""
    workers, meeting, done = Workers(2), threading.Barrier(2), []

    def meet(number: int) -> None:
        meeting.wait(timeout=10.0)
        done.append((number, current_limits().rows))

    with use_limits(Limits(rows=7)):
        workers.side_by_side([partial(meet, number) for number in range(6)])
    workers.side_by_side([partial(done.append, (6, 7))])
    workers.side_by_side([])
    assert sorted(done) == [(number, 7) for number in range(7)]


def test_first_error_side_by_side() -> None:
    """The error of the first task that fails is raised; tasks far behind it are not begun."""
    workers, begun = Workers(2), []

    def task(number: int) -> None:
        begun.append(number)
        if number >= 3:
            raise ValueError(f"task {number}")

    for _ in range(20):
        with pytest.raises(ValueError, match="task 3"):
            workers.side_by_side([partial(task, number) for number in range(50)])
        assert {0, 1, 2, 3} <= set(begun) <= {0, 1, 2, 3, 4}
        begun.clear()


def test_interruption_side_by_side() -> None:
    """Exceptions that are not Exception are raised, too, and workers go on."""
    workers, done = Workers(2), []

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workers.side_by_side([int, interrupt, int])

    workers.side_by_side([partial(done.append, 0)])
    assert done == [0]


def test_interruption_of_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is interrupted while it waits for others leaves when they are done."""
    monkeypatch.setattr(workers_module, "PATIENCE", 10.0)  # seconds, for busy machines
    workers, begun, done = Workers(2), threading.Event(), []
    this_thread = threading.get_ident()

    def interrupt() -> None:
        begun.set()
        time.sleep(0.1)  # so that the other thread waits
        signal.pthread_kill(this_thread, signal.SIGINT)
        time.sleep(0.1)
        done.append(True)

    # Shells make background processes ignore the signal, and Python does not change that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            workers.run([[begun.wait], [interrupt]])
    finally:
        signal.signal(signal.SIGINT, before)
    assert done

    workers.run([[int], [partial(done.append, False)]])
    assert done == [True, False]


@pytest.mark.parametrize("is_closed", [True, False])
def test_threads_end_with_their_owner(is_closed: bool) -> None:
    """Workers end when they are closed, and when nobody refers to them any more."""
    workers, before = Workers(3), set(threading.enumerate())
    workers.run([[int], [int], [int]])
    begun = set(threading.enumerate()) - before
    assert len(begun) == 2

    if is_closed:
        workers.close()
    else:
        del workers
        gc.collect()

    for thread in begun:
        thread.join(timeout=10.0)
    assert not any(thread.is_alive() for thread in begun)


def test_busy_workers_are_not_waited_for() -> None:
    """A job within a job runs on the caller's thread."""
    workers, names = Workers(2), []

    def job() -> None:
        workers.run([[lambda: names.append(threading.current_thread().name)] for _ in range(2)])

    workers.run([[job], []])

    assert names == [threading.current_thread().name] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_process_has_workers() -> None:
    """A forked process, which has no worker threads, starts its own."""
    workers = Workers(2)
    workers.run([[int], [int]])

    child = os.fork()
    if child == 0:
        done: list[int] = []
        workers.run([[partial(done.append, 1)], [partial(done.append, 2)]])
        os._exit(0 if sorted(done) == [1, 2] else 1)

    assert os.waitpid(child, 0)[1] == 0


@given(st.integers(0, 50), st.integers(1, 9))
def test_even_parts(length: int, count: int) -> None:
    """Parts are consecutive, cover all, and differ in length by one at most."""
    parts = even_parts(length, count)

    assert [k for part in parts for k in range(length)[part]] == list(range(length))
    sizes = [part.stop - part.start for part in parts]
    assert len(parts) == max(1, min(length, count))
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 50), st.integers(0, 60), st.integers(1, 4))
def test_parts_of_at_most(length: int, most: int, multiple_of: int) -> None:
    """Parts cover all, are no longer than the limit, and are as few as possible."""
    parts = parts_of_at_most(length, most, multiple_of=multiple_of)

    assert [k for part in parts for k in range(length)[part]] == list(range(length))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= max(most, 1)
    assert len(parts) % multiple_of == 0 or len(parts) == max(length, 1)
    assert length == 0 or (len(parts) - multiple_of) * max(most, 1) < length


def test_scratch_of_rounds_is_apart() -> None:
    """Arrays of rounds on different threads do not overlap; on one thread memory is reused.

    So is that of loops within a round, but not by rounds on other threads.
    """
    tape, taken, nested = NumpyTape(workers=Workers(2)), [], []
    for _ in tape.independent(range(4)):
        taken.append(tape.scratch(100))
    for _ in tape.independent(range(2)):
        for _ in tape.independent(range(2)):
            nested.append(tape.scratch(100))

    for arrays in (taken, nested):
        assert np.shares_memory(arrays[0], arrays[1])
        assert np.shares_memory(arrays[2], arrays[3])
        assert not np.may_share_memory(arrays[1], arrays[2])


def test_number_of_threads() -> None:
    """At most 256 threads are workers; one thread needs none."""
    nnet = network(CONFIG)

    assert DeviceNnet(nnet, threads=256).machine.workers.threads == 256
    assert DeviceNnet(nnet, threads=1).machine.workers is None


def trained(nnet: Nnet, threads: int) -> list[np.ndarray]:
    """Output, derivative, gradient and statistics of the second of two runs."""
    asked = request(range(-5, FRAMES + 5), range(FRAMES), sequences=1)
    computer = NnetComputer(nnet, CachingCompiler(nnet).compile(asked), threads=threads)
    passes(computer)
    return [*passes(computer), computer.nnet.component("norm").stats_var]


def test_results_on_several_threads() -> None:
    """Several threads give one thread's results up to rounding, and the same bits each time."""
    nnet = network(CONFIG)
    expected = trained(nnet, 1)

    for threads in (2, 3):
        found = trained(nnet, threads)
        assert_near(found, expected, 2e-6)
        for first, again in zip(found, trained(nnet, threads), strict=True):
            np.testing.assert_array_equal(again, first)
