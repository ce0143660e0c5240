"""Lanes: what each thread runs, and which threads it waits for."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_runtime_cuda.cpu import lanes, recorder
from nnet3_runtime_cuda.cpu.lanes import Lanes, Op, Round
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers

ROWS, COLUMNS = 6, 8
Pair = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes threads share the smallest operations, and remember few of them in detail."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)
    monkeypatch.setattr(lanes, "MOST_REMEMBERED", 1)


class Step:
    """A call that does nothing, with the numbers of the elements that it reads and writes."""

    def __init__(self, reads: np.ndarray, writes: np.ndarray) -> None:
        self.reads, self.writes = (set(array.ravel().tolist()) for array in (reads, writes))

    def __call__(self) -> None:
        """Does nothing."""

    def hinders(self, other: "Step") -> bool:
        """Whether both use an element that one of them writes."""
        return bool(self.writes & (other.reads | other.writes) or self.reads & other.writes)


@st.composite
def views(draw: st.DrawFn) -> tuple[slice, slice]:
    """A few rows and columns of a matrix, possibly every second one, or backward."""

    def part(length: int) -> slice:
        first = draw(st.integers(0, length - 1))
        end = draw(st.integers(first + 1, min(first + 3, length)))
        step = draw(st.sampled_from((1, 1, 2, -1)))
        return (
            slice(first, end, step)
            if step > 0
            else slice(end - 1, first - 1 if first else None, -1)
        )

    return part(ROWS), part(COLUMNS)


@st.composite
def programs(draw: st.DrawFn) -> tuple[int, list[Round]]:
    """A number of lanes, and rounds of steps on a matrix of element numbers."""
    matrix = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    count = draw(st.integers(2, 3))

    def op() -> Op:
        reads, writes = (matrix[draw(views())] for _ in range(2))
        return Op(Step(reads, writes), (reads,), (writes,))

    shares = st.lists(st.builds(lambda _: op(), st.none()), max_size=2).map(tuple)
    rounds = st.lists(shares, min_size=1, max_size=count).map(tuple)
    return count, draw(st.lists(rounds, min_size=1, max_size=24))


def order(job: Lanes) -> Iterator[tuple[int, Callable[[], object], list[int]]]:
    """The calls of all lanes, each with its lane and the number of finished rounds of each lane."""
    places = [0] * len(job.lanes)
    clocks = [[0] * len(job.lanes) for _ in job.lanes]
    released: dict[int, list[int]] = {}
    while any(place < len(lane) for place, lane in zip(places, job.lanes, strict=True)):
        before = list(places)
        for number, lane in enumerate(job.lanes):
            while places[number] < len(lane):
                call = lane[places[number]]
                lock, clock = getattr(call, "__self__", None), clocks[number]
                if not isinstance(lock, type(threading.Lock())):
                    clock[number] += 1
                    yield number, call, list(clock)
                elif call.__name__ == "release":
                    released[id(lock)] = list(clock)
                elif id(lock) in released:
                    clock[:] = map(max, clock, released[id(lock)])
                else:
                    break
                places[number] += 1
        assert places != before, "lanes wait for one another"


@settings(max_examples=3 * settings.default.max_examples)
@given(programs())
def test_lanes_wait_for_what_they_need(program: tuple[int, list[Round]]) -> None:
    """An element that a lane needs from another lane's earlier round is finished before."""
    count, rounds = program
    job = Lanes(Workers(count), rounds)

    found = {id(call): (lane, clock) for lane, call, clock in order(job)}

    steps = [
        (number, op.call) for number, one in enumerate(rounds) for share in one for op in share
    ]
    assert len(found) == len(steps) == len(job)
    for number, step in steps:
        lane, clock = found[id(step)]
        for earlier, other in steps:
            other_lane, other_clock = found[id(other)]
            if earlier < number and other.hinders(step):
                assert clock[other_lane] >= other_clock[other_lane], (lane, other_lane)


def test_own_rows_need_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that have the same rows and columns in consecutive operations do not wait."""
    monkeypatch.setattr(lanes, "MOST_REMEMBERED", 16)
    tape = NumpyTape(dtype=np.float64, workers=Workers(2))
    x, y, z = np.ones((3, 8, 6))
    tape.add(x, y, z)
    tape.multiply(z, 2.0, z)
    tape.matmul(z, np.eye(6), x)
    tape.add(x[:, :3], z[:, 3:], y[:, :3])
    (alone,) = tape.take()
    tape.add(x, y, z)
    tape.add(z[:-1], z[1:], x[1:])
    (at_border,) = tape.take()

    counts = [sum(len(lane.posts) for lane in job.lanes) for job in (alone, at_border)]
    assert counts[0] == 0
    assert 1 <= counts[1] <= 2


@given(st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_results_are_those_of_one_thread(threads: int, seed: int) -> None:
    """Random operations on views of the same memory give the results of running them in order."""
    results = []
    for workers in (None, Workers(threads) if threads > 1 else None):
        rng = np.random.default_rng(seed)
        memory = rng.integers(-2, 3, (4, 8, 8)).astype(np.float64)
        tape = NumpyTape(dtype=np.float64, workers=workers)
        for _ in range(rng.integers(1, 12)):
            tape.begin_command()
            record_any(tape, memory, rng)
        for _ in range(2):
            tape.run()
        results.append(memory)
    np.testing.assert_array_equal(*results)


def record_any(tape: NumpyTape, memory: np.ndarray, rng: np.random.Generator) -> None:
    """Records a random operation on views of an array (4, 8, 8)."""
    a, b, out = (memory[k] for k in rng.permutation(4)[:3])
    rows, shift = int(rng.integers(1, 8)), int(rng.integers(0, 2))
    kind = rng.integers(0, 7)
    if kind == 0:
        tape.add(a[shift : shift + rows], b[:rows], out[:rows])
    elif kind == 1:
        tape.minimum(a[:, shift : shift + rows], 2.0, out[:, :rows])
    elif kind == 2:
        tape.matmul(a[:rows], b, out[shift : shift + rows], add=bool(shift))
        tape.minimum(out, 3.0, out)
        tape.maximum(out, -3.0, out)
    elif kind == 3:
        tape.column_sum(a[:rows], out[:1])
        tape.minimum(out[:1], 3.0, out[:1])
    elif kind == 4:
        tape.take_rows(a, rng.integers(0, 8, rows), out[:rows])
    elif kind == 5:
        copy = tape.scratch(rows, 8)
        tape.copy(a[:rows].T[::-1].T, copy)
        tape.copy(copy, out[shift : shift + rows])
    else:
        with tape.when(tape.value(lambda: float(shift))):
            tape.subtract(a[:rows], b[shift : shift + rows], out[:rows])
            tape.minimum(out, 3.0, out)


@pytest.mark.parametrize("guilty", [0, 1])
def test_errors(guilty: int) -> None:
    """An error in a call is raised to the caller, no lane waits forever, and the next run works."""
    values, done, fails = np.zeros((3, 2)), defaultdict(int), True

    def call(lane: int, number: int) -> None:
        done[lane, number] += 1
        if fails and (lane, number) == (guilty, 1):
            raise ValueError("no number")

    def op(lane: int, number: int) -> Op:
        return Op(partial(call, lane, number), (values[number],), (values[number : number + 2],))

    rounds = [((op(0, number),), (op(1, number),)) for number in range(2)]
    job = Lanes(Workers(2), [*rounds, ((op(1 - guilty, 0),),)])
    for _ in range(3):
        with pytest.raises(ValueError, match="no number"):
            job()
    fails = False
    done.clear()
    job()
    assert sum(done.values()) == len(job)


def test_busy_workers() -> None:
    """While another job has the threads, the caller's thread runs all calls, in order."""
    workers, done, seen = Workers(2), [], []
    values = np.zeros((3, 2))
    rounds = [
        tuple((Op(partial(done.append, (k, lane)), (), (values,)),) for lane in range(2))
        for k in range(3)
    ]
    job = Lanes(workers, rounds)

    def other() -> None:
        job()
        seen.append(threading.current_thread())

    workers.run([[other], []])
    assert seen == [threading.current_thread()]
    assert done == [(k, lane) for k in range(3) for lane in range(2)]
