"""Streams and computers whose methods are called in any order, with errors and interruptions."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from computations import compiled, interruptions, loop
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from nnet3 import Model, StreamState
from nnet3_compiler import compile_segments, looped_requests
from nnet3_compiler.looped import extended_requests
from nnet3_descriptors import Nnet
from nnet3_descriptors.editing import set_learning_rate
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, RunError
from small_networks import network, stacked

# ---- streams ----

WITH_IVECTOR = "input-node name=ivector dim=2\n" + stacked(
    3,
    "affine Affine input-dim=12 output-dim=4",
    "tanh Tanh dim=4",
    "last Affine input-dim=4 output-dim=3",
    splice="Append(Offset(input, -1), Offset(input, 1), IfDefined(Offset(tanh, -2)), "
    "ReplaceIndex(ivector, t, 0))",
)

WITHOUT_STATE = stacked(
    3,
    "affine Affine input-dim=9 output-dim=4",
    "relu RectifiedLinear dim=4",
    "last Linear input-dim=8 output-dim=3 input=Append(relu, Offset(relu, -1))",
    splice="Append(Offset(input, -2), input, Offset(input, 3))",
)

OF_SUMS = stacked(
    3,
    "sum Linear input-dim=6 output-dim=3 param-stddev=0.5",
    "sigmoid Sigmoid dim=3",
    splice="Append(input, IfDefined(Offset(sum, -1)))",
)
"""What it hands on can overflow, what it gives cannot."""

NAMES = st.sampled_from("abc")


@cache
def model(config: str) -> Model:
    """A model with random parameters."""
    return Model(network(config, seed=3))


class StreamCalls(RuleBasedStateMachine):
    """A sequence gives what it gives in one push, whatever happened to it and to others."""

    @initialize(
        config=st.sampled_from([WITH_IVECTOR, WITHOUT_STATE, OF_SUMS]),
        size=st.sampled_from([2, 4]),
        subsampling=st.sampled_from([1, 2]),
        sequences=st.sampled_from([1, 2]),
        apply_exp=st.booleans(),
    )
    def begin(
        self, config: str, size: int, subsampling: int, sequences: int, apply_exp: bool
    ) -> None:
        """Begins without sequences."""
        self.model, self.subsampling = model(config), subsampling
        options = {"frames_per_chunk": size, "frame_subsampling_factor": subsampling}
        self.stream = self.model.stream(**options, sequences=sequences, apply_exp=apply_exp)
        self.other = self.model.stream(**options, sequences=sequences, apply_exp=apply_exp)
        self.rng = np.random.default_rng(1)
        self.frames: dict[str, list[np.ndarray]] = {}
        self.outputs: dict[str, list[np.ndarray]] = {}
        self.ivectors: dict[str, np.ndarray] = {}
        self.excessive: set[str] = set()  # sequences that may overflow
        self.ended: set[str] = set()  # sequences whose last outputs an error has put off
        self.waiting: set[str] = set()  # sequences that may have outputs that an error has put off

    @rule(
        counts=st.dictionaries(NAMES, st.integers(0, 9)),
        ends=st.sets(NAMES),
        excessive=st.sampled_from([None, None, None, "a", "b", "c"]),
        value=st.sampled_from([1e5, 3e38]),
    )
    def push(
        self, counts: dict[str, int], ends: set[str], excessive: str | None, value: float
    ) -> None:
        """Pushes frames of several sequences; some end, one may have values that overflow."""
        given, ivectors = {}, {}
        for name in (each for each in counts if each not in self.ended):
            given[name] = self.rng.standard_normal((counts[name], 3), dtype=np.float32)
            if name == excessive and counts[name]:
                given[name] = np.float32(value) * np.sign(given[name])
                self.excessive.add(name)
            if name not in self.frames and self.model.ivector_dim:
                ivectors[name] = self.rng.standard_normal(2, dtype=np.float32)
        for name, frames in given.items():
            self.frames.setdefault(name, []).append(frames)
            self.outputs.setdefault(name, [])
        self.ivectors |= ivectors
        if ends - self.frames.keys():
            with pytest.raises(RunError, match="sequence"):
                self.stream.push_many({}, finished=ends)
        ends &= self.frames.keys()
        found, message = self.pushed(given, ivectors, ends)
        if message:
            self.ended |= ends & self.frames.keys()
            self.waiting |= self.frames.keys()
            return
        self.waiting -= found.keys()
        for name, rows in found.items():
            self.outputs.setdefault(name, []).append(rows)
        for name in ends:
            self.check_whole(name)
            self.forget(name)
        assert set(self.stream.open_sequences) == self.frames.keys()

    def pushed(
        self,
        frames: dict[str, np.ndarray],
        ivectors: dict[str, np.ndarray],
        ends: Collection[str] = (),
    ) -> tuple[dict[str, np.ndarray], str]:
        """The outputs for some frames; if a sequence overflows, the message instead of them."""
        message = ""
        try:
            return self.stream.push_many(frames, ivectors, finished=ends), message
        except RunError as error:
            message = str(error)
        (gone,) = self.frames.keys() - set(self.stream.open_sequences)
        assert gone in self.excessive
        assert f"'{gone}'" in message
        self.forget(gone)
        return {}, message

    def check_whole(self, name: str) -> None:
        """Compares the outputs of a sequence that has ended."""
        found = np.concatenate(self.outputs[name])
        frames = np.concatenate([np.empty((0, 3), np.float32), *self.frames.get(name, [])])
        assert found.shape == (-(-len(frames) // self.subsampling), 3)
        if not len(frames) or name in self.excessive:
            return
        given = {name: self.ivectors[name]} if name in self.ivectors else {}
        expected = self.other.push_many({name: frames}, given, finished=[name])[name]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def forget(self, name: str) -> None:
        """Forgets a sequence that the stream has forgotten."""
        for known in (self.frames, self.outputs, self.ivectors):
            known.pop(name, None)
        for names in (self.excessive, self.ended, self.waiting):
            names.discard(name)

    @rule(name=NAMES, fault=st.sampled_from(["nan", "dim", "ivector", "ended"]))
    def push_in_vain(self, name: str, fault: str) -> None:
        """Pushes what is refused, beside frames of all sequences; nothing changes."""
        frames, ivectors = np.zeros((4, 3), np.float32), {}
        given = {each: frames for each in self.frames if each not in self.ended}
        given[name] = frames
        if fault == "nan":
            given[name] = np.full((4, 3), np.nan)
        elif fault == "dim":
            given[name] = np.zeros((4, 2))
        elif fault == "ivector":
            ivectors = {name: np.zeros(1)}
        elif name not in self.ended:
            return
        with pytest.raises(RunError):
            self.stream.push_many(given, ivectors, finished=self.frames)
        assert set(self.stream.open_sequences) == self.frames.keys()

    @property
    def up_to_date(self) -> list[str]:
        """The sequences for which no error has put outputs off."""
        return sorted(self.frames.keys() - self.waiting)

    @rule(name=NAMES)
    def reset(self, name: str) -> None:
        """Forgets a sequence."""
        self.stream.reset(name)
        self.forget(name)

    @precondition(attrgetter("frames"))
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Stores a sequence, and continues from the bytes; one that has ended has no state."""
        name = data.draw(st.sampled_from(sorted(self.frames)))
        if name in self.ended:
            with pytest.raises(RunError, match="has ended"):
                self.stream.state(name)
            return
        if name in self.waiting:
            found, message = self.pushed({name: np.empty((0, 3))}, {})
            if message:
                return
            self.outputs[name].append(found[name])
            self.waiting.discard(name)
        stored = self.stream.state(name).to_bytes()
        self.stream.reset(name)
        self.stream.resume(StreamState.from_bytes(stored), name)

    @precondition(attrgetter("up_to_date"))
    @rule(data=st.data())
    def push_just_enough(self, data: st.DataObject) -> None:
        """Outputs come with the frame that `frames_to_outputs` says, and not before."""
        name = data.draw(st.sampled_from(self.up_to_date))
        count = self.stream.frames_to_outputs(name)
        for size, has_outputs in ((count - 1, False), (1, True)):
            frames = self.rng.standard_normal((size, 3), dtype=np.float32)
            self.frames[name].append(frames)
            found, message = self.pushed({name: frames}, {})
            if message:
                return
            assert (len(found[name]) > 0) == has_outputs
            self.outputs[name].append(found[name])


StreamCalls.TestCase.settings = settings(stateful_step_count=20)
TestStreams = StreamCalls.TestCase


# ---- computers ----

RECURRENT = stacked(
    3,
    "affine Affine input-dim=7 output-dim=4",
    "tanh Tanh dim=4 self-repair-scale=0",
    "last Affine input-dim=8 output-dim=4 input=Append(tanh, IfDefined(Offset(tanh, -3)))",
    splice="Append(input, IfDefined(Offset(tanh, -1)))",
)

WHOLE, LOOP, SEGMENTS = "whole", "loop", "segments"
KINDS = st.sampled_from([WHOLE, LOOP, SEGMENTS])
NUM_SEGMENTS = 4


@cache
def recurrent() -> tuple[Nnet, dict[str, Any]]:
    """A network, and computations of it."""
    nnet = network(RECURRENT)
    segments = extended_requests(looped_requests(nnet, 6), NUM_SEGMENTS)
    return nnet, {
        WHOLE: compiled(nnet, range(6), sequences=1),
        LOOP: loop(nnet, 6),
        SEGMENTS: compile_segments(nnet, segments),
    }


class ComputerCalls(RuleBasedStateMachine):
    """Computers of one network give what new ones give that get the calls that count."""

    @initialize(trainable=st.booleans(), threads=st.sampled_from([1, 2]))
    def begin(self, trainable: bool, threads: int) -> None:
        """Binds the computations."""
        self.trainable, self.threads = trainable, threads
        self.begun: dict[str, Nnet] = {}  # what a judge begins with, until it is made
        self.patch = pytest.MonkeyPatch()
        self.due = interruptions(self.patch)
        self.nnet, computations = recurrent()
        self.device_nnet = DeviceNnet(self.nnet, trainable=trainable, threads=threads)
        self.computers = {
            kind: NnetComputer(self.device_nnet, computation)
            for kind, computation in computations.items()
        }
        self.rng = np.random.default_rng(1)
        self.judges: dict[str, NnetComputer] = {}
        self.is_lost: dict[str, bool] = {}
        self.num_runs: dict[str, int] = {}
        self.awaits_backward = False
        self.renew(self.computers)

    def teardown(self) -> None:
        """Leaves the kernels as they were."""
        if hasattr(self, "patch"):
            self.patch.undo()

    def renew(self, kinds: Collection[str]) -> None:
        """New computers, with nothing behind them, take over the judging of some computations."""
        nnet = self.device_nnet.current()
        for kind in kinds:
            self.begun[kind] = nnet
            self.is_lost[kind], self.num_runs[kind] = False, 0
        self.awaits_backward = self.awaits_backward and WHOLE not in kinds

    def judge(self, kind: str) -> NnetComputer:
        """What judges a computation; made when it is first asked."""
        nnet = self.begun.pop(kind, None)
        if nnet is not None:
            own = DeviceNnet(nnet, trainable=self.trainable, threads=self.threads)
            self.judges[kind] = NnetComputer(own, recurrent()[1][kind])
        return self.judges[kind]

    def values(self, columns: int) -> np.ndarray:
        """Values for six frames."""
        return self.rng.standard_normal((6, columns), dtype=np.float32)

    @rule(kind=KINDS)
    def forward(self, kind: str) -> None:
        """Runs the next segment; after an interrupted one only a reset helps."""
        inputs = {"input": self.values(3)}
        if self.is_lost[kind]:
            with pytest.raises(RunError, match="a segment was interrupted"):
                self.computers[kind].forward(inputs)
            return
        both = (self.computers[kind], self.judge(kind))
        found, expected = (each.forward(inputs) for each in both)
        np.testing.assert_allclose(found["output"], expected["output"], rtol=1e-5, atol=1e-6)
        self.num_runs[kind] += 1
        self.awaits_backward = self.awaits_backward or kind == WHOLE

    @rule()
    def backward(self) -> None:
        """Runs the backward pass, if a forward pass awaits it."""
        derivatives = {"output": self.values(4)}
        if not self.awaits_backward:
            with pytest.raises(RunError, match="needs a forward"):
                self.computers[WHOLE].backward(derivatives)
            return
        both = (self.computers[WHOLE], self.judge(WHOLE))
        found, expected = (each.backward(derivatives)["input"] for each in both)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        found, expected = (each.device_nnet.direction for each in both)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        self.awaits_backward = False

    @rule(kind=KINDS)
    def interrupt_forward(self, kind: str) -> None:
        """Interrupts a segment: of a loop, or after the first, it takes the state with it."""
        if self.is_lost[kind]:
            return
        self.due.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            self.computers[kind].forward({"input": self.values(3)})
        if kind == WHOLE:
            self.awaits_backward = False
        elif kind == LOOP or self.num_runs[kind] % NUM_SEGMENTS:
            self.is_lost[kind] = True
        else:
            self.renew([kind])

    @precondition(attrgetter("awaits_backward"))
    @rule()
    def interrupt_backward(self) -> None:
        """Interrupts a backward pass: it cannot be run again."""
        self.due.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            self.computers[WHOLE].backward({"output": self.values(4)})
        self.awaits_backward = False

    @rule(kind=KINDS, given=st.sampled_from([None, np.full((6, 3), np.nan), np.zeros((5, 3))]))
    def refused(self, kind: str, given: np.ndarray | None) -> None:
        """Gives values that are refused; nothing changes."""
        for name, run in (("input", "forward"), ("output", "backward")):
            with pytest.raises(RunError):
                getattr(self.computers[kind], run)({} if given is None else {name: given})

    @rule(kind=KINDS)
    def reset(self, kind: str) -> None:
        """Begins with the first segment."""
        self.computers[kind].reset()
        self.renew([kind])

    @precondition(attrgetter("trainable"))
    @rule(rate=st.sampled_from([0.1, 0.3]))
    def step(self, rate: float) -> None:
        """Changes the parameters by a rate times the last direction."""
        expected = self.device_nnet.parameters + np.float32(rate) * self.device_nnet.direction
        self.device_nnet.change_options(set_learning_rate(self.device_nnet.nnet, rate))
        self.device_nnet.take_step()
        np.testing.assert_allclose(self.device_nnet.parameters, expected, rtol=1e-6, atol=1e-7)
        for computer in self.computers.values():
            computer.reset()
        self.renew(self.computers)


ComputerCalls.TestCase.settings = settings(stateful_step_count=20)
TestComputers = ComputerCalls.TestCase
