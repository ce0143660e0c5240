"""Steps of a trainer that are interrupted, or that an error breaks off, at any moment."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from types import FrameType

import attrs
import numpy as np
import pytest
import small_networks
from emulated_device import HostPlatform, compiler
from nnet3_descriptors import Nnet
from nnet3_training import (
    ExampleInput,
    ExampleOutput,
    Objective,
    Trainer,
    TrainerOptions,
    TrainingError,
    TrainingExample,
)

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")

NETWORK = small_networks.stacked(
    4,
    "a NaturalGradientAffine input-dim=8 output-dim=6",
    "r RectifiedLinear dim=6 self-repair-scale=0.1",
    "n BatchNorm dim=6",
    "d Dropout dim=6 dropout-proportion=0.3",
    "l Linear input-dim=6 output-dim=5 orthonormal-constraint=-1.0",
    "c Composite num-components=2 component1='type=TanhComponent dim=5' "
    "component2='type=NaturalGradientPerElementScaleComponent dim=5'",
    "b NaturalGradientAffine input-dim=5 output-dim=3",
    splice="Append(Offset(input, -1), input)",
    objective="quadratic",
)
OPTIONS = TrainerOptions(learning_rate=0.02, orthonormal_period=2, seed=11, print_interval=3)
KINDS = {
    "plain": {},
    "momentum": {"momentum": 0.5},
    "backstitch": {"backstitch_training_scale": 0.3, "backstitch_training_interval": 2},
}
FIRST = 14
"""The first steps, which compile and which all update the natural gradient, are left alone."""

Trace = Callable[[FrameType, str, object], object]


def network() -> Nnet:
    """A network with all kinds of state: statistics, estimates, masks, constraints."""
    return small_networks.network(NETWORK, seed=3)


def minibatch(number: int) -> TrainingExample:
    """Frames of noise."""
    rng = np.random.default_rng(number)
    return TrainingExample(
        inputs=[
            ExampleInput.from_sequences(
                "input", rng.standard_normal((2, 10, 4), dtype=np.float32), t_start=-1
            )
        ],
        outputs=[
            ExampleOutput.from_targets("output", rng.standard_normal((2, 9, 3), dtype=np.float32))
        ],
    )


def step(trainer: Trainer) -> None:
    """Makes the next step."""
    trainer.train_minibatch(minibatch(trainer.num_minibatches))


def saved(trainer: Trainer, path: Path) -> bytes:
    """The bytes of a checkpoint."""
    trainer.save(path)
    return path.read_bytes()


@contextmanager
def traced(event: str, at: Callable[[int], object]) -> Iterator[list[int]]:
    """Counts events of Python within, in a list of one number; calls `at` with each count."""
    count = [0]

    def trace(frame: FrameType, kind: str, _: object) -> Trace:
        frame.f_trace_opcodes = event == "opcode"
        if kind == event:
            count[0] += 1
            at(count[0])
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def begun(trainer: Trainer) -> Trainer:
    """The trainer after its first steps."""
    while trainer.num_minibatches < FIRST:
        step(trainer)
    return trainer


def events_of_a_step(trainer: Trainer, event: str) -> int:
    """The number of events of Python in a step."""
    with traced(event, lambda count: None) as events:
        step(trainer)
    return events[0]


def interrupt_at(moment: int) -> Callable[[int], object]:
    """Sends Ctrl-C at that event."""
    return lambda count: count == moment and signal.raise_signal(signal.SIGINT)


def no_memory_at(moment: int) -> Callable[[int], object]:
    """Raises a MemoryError at that event."""

    def at(count: int) -> None:
        if count == moment:
            raise MemoryError

    return at


class Expected:
    """The states of a run without interruptions."""

    def __init__(self, trainer: Trainer, path: Path) -> None:
        self._trainer, self._path = begun(trainer), path
        self._states: dict[int, bytes] = {}

    def after(self, count: int) -> bytes:
        """The state after `count` steps."""
        while count not in self._states:
            self._states[self._trainer.num_minibatches] = saved(self._trainer, self._path)
            step(self._trainer)
        return self._states[count]


@pytest.fixture
def usual_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, whatever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_interrupts")
@pytest.mark.parametrize(
    ("kind", "device", "moments"),
    [
        *((kind, "cpu", 150) for kind in KINDS),
        pytest.param("plain", "host", 50, marks=needs_compiler),
        pytest.param("backstitch", "host", 50, marks=needs_compiler),
    ],
)
def test_interrupted_steps(kind: str, device: str, moments: int, tmp_path: Path) -> None:
    """Ctrl-C at any moment leaves a step that was made or was not, and training goes on."""
    options, path, rng = attrs.evolve(OPTIONS, **KINDS[kind]), tmp_path / "checkpoint", Random(1)
    platform = device if device == "cpu" else HostPlatform()
    longest = events_of_a_step(begun(Trainer(network(), options, platform)), "opcode")
    expected = Expected(Trainer(network(), options, platform), path)
    trainer, made = begun(Trainer(network(), options, platform)), 0

    for _ in range(moments):
        before, moment = trainer.num_minibatches, rng.randrange(1, longest)
        events: list[int] = []
        try:
            with traced("opcode", interrupt_at(moment)) as events:
                step(trainer)
        except KeyboardInterrupt:
            pass
        else:
            # Steps are not equally long; NumPy asks enumerations for attributes, and swallows
            # what is raised meanwhile.
            assert events[0] <= moment
        made += trainer.num_minibatches - before
        if rng.random() < 0.8:  # else the next step finds what this one has left
            assert saved(trainer, path) == expected.after(trainer.num_minibatches)

    assert 0 < made < moments
    step(trainer)
    assert saved(trainer, path) == expected.after(trainer.num_minibatches)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in generators
@pytest.mark.parametrize(
    ("kind", "device", "stride"),
    [
        ("plain", "cpu", 4),
        ("momentum", "cpu", 9),
        ("backstitch", "cpu", 9),
        pytest.param("plain", "host", 40, marks=needs_compiler),
    ],
)
def test_errors_anywhere(kind: str, device: str, stride: int, tmp_path: Path) -> None:
    """An error in any function of a step undoes it, or the trainer refuses half-new parameters."""
    options, path = attrs.evolve(OPTIONS, **KINDS[kind]), tmp_path / "checkpoint"
    platform = device if device == "cpu" else HostPlatform()
    expected = Expected(Trainer(network(), options, platform), path)
    trainer = begun(Trainer(network(), options, platform))
    calls, undone, refused = events_of_a_step(trainer, "call"), 0, 0

    for moment in range(1, calls, stride):
        before = trainer.num_minibatches
        with suppress(MemoryError), traced("call", no_memory_at(moment)):
            step(trainer)
        try:
            assert saved(trainer, path) == expected.after(trainer.num_minibatches)
            undone += trainer.num_minibatches == before
        except TrainingError:
            with pytest.raises(TrainingError, match=rf"^minibatch {before}: an error broke off "):
                step(trainer)
            trainer, refused = begun(Trainer(network(), options, platform)), refused + 1

    assert undone > 0.6 * calls / stride
    assert refused < 0.2 * calls / stride


def test_error_of_an_objective(tmp_path: Path) -> None:
    """After an error of the objective, the same minibatch gives what it gives without the error."""
    path, fails = tmp_path / "checkpoint", [True]

    def objective(outputs: Mapping[str, np.ndarray], _: TrainingExample) -> dict[str, Objective]:
        if fails.pop():
            raise ZeroDivisionError
        fails.append(True)
        return {"output": Objective(total=0.0, weight=1.0, derivative=-outputs["output"])}

    trainer, other = (Trainer(network(), OPTIONS, objective=objective) for _ in range(2))
    with pytest.raises(ZeroDivisionError):
        step(trainer)
    for each in (trainer, other):
        fails[:] = [True, False]
        step(each)

    assert saved(trainer, path) == saved(other, tmp_path / "other")


@pytest.mark.usefixtures("usual_interrupts")
def test_objective_is_interrupted() -> None:
    """Ctrl-C comes at once while an objective computes; the objective may look at the network."""
    seen = []

    def objective(outputs: object, example: TrainingExample) -> dict[str, Objective]:
        seen.append(trainer.nnet.component("n").count)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    trainer = Trainer(network(), OPTIONS, objective=objective)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            step(trainer)

    assert seen == [18.0, 18.0]
    assert trainer.nnet.component("n").count == 0.0
