"""Streams: they give the outputs of `compute`, for any pushes and any other sequences."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random

import attrs
import numpy as np
import pytest
import small_networks
from model_cases import assert_same, frames
from nnet3 import Model, Stream, StreamState, load
from nnet3_descriptors import Nnet, write_nnet
from nnet3_runtime_cuda import RunError
from small_networks import stacked

TDNN = stacked(
    4,
    "affine Affine input-dim=12 output-dim=5",
    "relu RectifiedLinear dim=5",
    "tdnn Tdnn input-dim=5 output-dim=3 time-offsets=-1,0,1",
    splice="Append(Offset(input, -2), input, Offset(input, 3))",
)
RECURRENT = stacked(
    4,
    "affine Affine input-dim=9 output-dim=5 param-stddev=0.3",
    "tanh Tanh dim=5",
    splice="Append(Offset(input, 1), IfDefined(Offset(tanh, -3)))",
)

WITH_IVECTOR = "input-node name=ivector dim=2\n" + stacked(
    4,
    "first Affine input-dim=6 output-dim=3",
    "second Affine input-dim=6 output-dim=3 input=Append(Offset(first, -3), Offset(first, 2))",
    splice="Append(input, ReplaceIndex(ivector, t, 0))",
)

LATE = stacked(4, "noop NoOp dim=4", splice="Offset(input, -3)")
GROWING = stacked(4, "affine Affine input-dim=4 output-dim=4 param-stddev=1e38")
OVERFLOWING = stacked(
    4,
    "sum Linear input-dim=8 output-dim=4",
    "sigmoid Sigmoid dim=4",
    splice="Append(input, IfDefined(Offset(sum, -1)))",
)


def network(config: str) -> Nnet:
    """A network with random parameters."""
    return small_networks.network(config, seed=3)


def pushed(stream: Stream, values: np.ndarray, sizes: Random, most: int = 9) -> np.ndarray:
    """The outputs for frames in pushes of random sizes."""
    parts, begin = [], 0
    while begin < len(values):
        count = sizes.randint(0, most)
        parts.append(stream.push(values[begin : begin + count]))
        begin += count
    return np.concatenate([*parts, stream.finish()])


class TestOneSequence:
    """Frames of one sequence."""

    def test_outputs_come_at_once(self) -> None:
        """The outputs of a chunk are there with the last frame that it needs."""
        stream = Model(network(TDNN)).stream(frames_per_chunk=5)
        counts = [len(stream.push(frames(1, seed=number))) for number in range(20)]

        assert stream.delay == 8
        assert counts == [0] * 8 + [5] + [0] * 4 + [5] + [0] * 4 + [5, 0]
        assert stream.frames_to_outputs() == 4
        assert len(stream.finish()) == 5
        assert stream.frames_to_outputs() == 9

    def test_reset(self) -> None:
        """After a reset, the next push is the beginning of a sequence."""
        model = Model(network(RECURRENT))
        stream = model.stream(frames_per_chunk=4)
        stream.push(frames(30, seed=1))
        stream.reset()

        assert_same(stream.finish(), np.empty((0, 5)))
        assert_same(pushed(stream, frames(30), Random(0)), model.compute(frames(30)))

    def test_interrupted_changes(self) -> None:
        """After Ctrl-C within a change, a sequence does not go on before it is reset."""
        model = Model(network(RECURRENT))
        stream = model.stream(frames_per_chunk=4)
        stream.push(frames(2, seed=1))

        class Interrupted(list):  # type: ignore[type-arg]
            def append(self, value: object) -> None:
                super().append(value)
                raise KeyboardInterrupt

        stream._open[None].outputs = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            stream.push(frames(30, seed=1))
        for go_on in (lambda: stream.push(frames(4)), stream.finish, stream.state):
            with pytest.raises(RunError, match=r"Ctrl-C broke off the frames: reset\(\) begins"):
                go_on()
        stream.reset()

        assert_same(pushed(stream, frames(30), Random(0)), model.compute(frames(30)))

    def test_frames_are_copied(self) -> None:
        """The caller can change the array of a push afterwards."""
        model = Model(network(TDNN))
        stream, values, parts = model.stream(frames_per_chunk=20), np.empty((3, 4), "f4"), []
        for begin in range(0, 33, 3):
            values[:] = frames(33)[begin : begin + 3]
            parts.append(stream.push(values))

        assert_same(np.concatenate([*parts, stream.finish()]), model.compute(frames(33)))

    def test_a_network_that_reads_the_past_only(self) -> None:
        """Outputs appear only after the frames that they belong to."""
        model = Model(network(LATE))
        stream = model.stream(frames_per_chunk=4)

        assert len(stream.push(frames(3))) == 0
        assert len(stream.push(frames(1))) == 4
        stream.reset()
        assert_same(pushed(stream, frames(33), Random(0)), model.compute(frames(33)))

    def test_memory_does_not_grow(self) -> None:
        """After 5,000 frames, 80 kB, with outputs of 100 kB, no memory is kept."""
        stream = Model(network(RECURRENT)).stream(frames_per_chunk=10)
        values = frames(1000)
        stream.push(values)
        tracemalloc.start()
        held = []
        for _ in range(6):
            for begin in range(0, 1000, 7):
                stream.push(values[begin : begin + 7])
            held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()

        assert held[-1] - held[0] < 40_000

    def test_a_long_push_is_let_go(self) -> None:
        """The few frames that are still needed do not keep the array of their push alive."""
        stream = Model(network(TDNN)).stream(frames_per_chunk=500)
        stream.push(frames(2000))
        tracemalloc.start()
        stream.push(np.zeros((100_000, 4), np.float32))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert held < 400_000

    def test_integers_of_numpy(self) -> None:
        """Options given as NumPy's integers are those of Python: states can be exchanged."""
        model = Model(network(TDNN))
        stream = model.stream(frames_per_chunk=np.int64(5), frame_subsampling_factor=np.int32(1))
        outputs = stream.push(frames(17))
        other = model.stream(frames_per_chunk=5)
        other.resume(stream.state())

        assert_same(np.concatenate([outputs, other.finish()]), model.compute(frames(17)))


class TestIvectors:
    """I-vectors that change over time."""

    def test_long_periods(self) -> None:
        """Thousands of frames may share an i-vector."""
        model, ivector = Model(network(WITH_IVECTOR)), frames(1, dim=2)[0]
        stream = model.stream(frames_per_chunk=2500)

        found = [stream.push(frames(5), ivector), stream.finish()]

        assert_same(np.concatenate(found), model.compute(frames(5), ivector))

    def test_rounded_times(self) -> None:
        """Chunks begin where what is read of i-vectors repeats, whatever stands in ReplaceIndex."""
        config = stacked(2, "a NoOp dim=2", splice="ReplaceIndex(ivector, t, 0)").replace(
            "name=output input=a", "name=output input=Sum(input, ReplaceIndex(Round(a, 3), t, 0))"
        )
        model = Model(network(f"input-node name=ivector dim=2\n{config}"))
        ivector, features = np.ones(2, np.float32), frames(40, dim=2)
        stream = model.stream(frames_per_chunk=10, ivector_period=5)

        assert stream.frames_to_outputs() == 15
        outputs = [stream.push(features, ivector), stream.finish()]
        np.testing.assert_array_equal(np.concatenate(outputs), features + 1)

    def test_they_are_no_reason_to_wait(self) -> None:
        """A stream looks ahead no further than the network needs, however it reads i-vectors."""
        read = "ReplaceIndex(ivector, t, 0)"
        splice = f"Failover(Offset({read}, -5), Offset(Switch(input, {read}), -2))"
        model = Model(network("input-node name=ivector dim=2\n" + stacked(2, splice=splice)))
        ivector, features = np.ones(2, np.float32), frames(9, dim=2)
        stream = model.stream(frames_per_chunk=4, extra_left_context_initial=8)

        assert stream.delay == 3
        outputs = stream.push(features[:4], ivector)
        np.testing.assert_array_equal(outputs, model.compute(features[:4], ivector))


class TestManySequences:
    """Sequences that come and go."""

    @pytest.mark.parametrize("config", [TDNN, RECURRENT])
    @pytest.mark.parametrize("sequences", [1, 4])
    def test_they_come_and_go(self, config: str, sequences: int) -> None:
        """Each sequence has the outputs that it would have alone."""
        model, rng = Model(network(config)), Random(0)
        stream = model.stream(frames_per_chunk=6, sequences=sequences)
        waiting = {number: frames(rng.randint(0, 50), seed=number) for number in range(40)}
        expected = {
            number: model.compute(values, frames_per_chunk=60)
            for number, values in waiting.items()
            if len(values)
        }
        found: dict[int, list[np.ndarray]] = {number: [] for number in waiting}
        running: list[int] = []
        while waiting:
            while len(running) < 7 and len(running) < len(waiting):
                running.append(next(number for number in waiting if number not in running))
            given, finished = {}, []
            for number in rng.sample(running, rng.randint(1, len(running))):
                count = rng.randint(0, 12)
                given[number] = waiting[number][:count]
                waiting[number] = waiting[number][count:]
                if not len(waiting[number]) and rng.randrange(2):
                    finished.append(number)
            for number, outputs in stream.push_many(given, finished=finished).items():
                found[number].append(outputs)
            for number in finished:
                del waiting[number]
                running.remove(number)

        assert stream.open_sequences == ()
        for number, outputs in found.items():
            assert_same(np.concatenate(outputs), expected.get(number, np.empty((0, 0))[:, :0]))

    def test_nothing_is_compiled_for_one_more(self) -> None:
        """Making a stream compiles all its programs; streams with equal options share them."""
        model = Model(network(RECURRENT))
        stream = model.stream(frames_per_chunk=6, sequences=3)
        seconds = model.compile_seconds
        for number in range(7):
            stream.push_many({name: frames(9, seed=number) for name in range(number)})
        model.stream(frames_per_chunk=6, sequences=3).push(frames(20))

        assert model.compile_seconds == seconds > 0

    def test_one_that_overflows(self) -> None:
        """A sequence that overflows is named and ended; the others keep their outputs."""
        model = Model(network(GROWING))
        stream = model.stream(frames_per_chunk=2, sequences=3)
        good, bad = frames(4) * np.float32(1e-3), np.full((4, 4), 1e30, np.float32)
        with pytest.raises(RunError, match="'output' of sequence 'bad' overflowed"):
            stream.push_many({"good": good, "bad": bad, "other": good})

        assert stream.open_sequences == ("good", "other")
        assert_same(stream.push(good, sequence="good"), model.compute(np.concatenate([good, good])))
        assert_same(stream.finish("other"), model.compute(good))

    def test_one_whose_scores_overflow(self) -> None:
        """A sequence whose scores overflow is named and ended; the others keep their outputs."""
        model = Model(network(TDNN))
        stream = model.stream(frames_per_chunk=2, sequences=3, apply_exp=True)
        good, bad = frames(8), frames(8) * np.float32(1e4)
        expected = model.compute(good, apply_exp=True)
        first = stream.push(good[:5], sequence="good")
        with pytest.raises(RunError, match=r"of sequence 'bad' \(scale, exponential\) overflowed"):
            stream.push_many({"good": good[5:], "bad": bad}, finished=["good"])

        assert stream.open_sequences == ("good",)
        assert_same(np.concatenate([first, stream.finish("good")]), expected)

    def test_a_state_that_overflows(self) -> None:
        """A sequence that hands on an infinite value ends at its next chunk, beside others."""
        nnet = network(OVERFLOWING)
        weights = np.hstack([np.eye(4), 1e10 * np.eye(4)]).astype(np.float32)
        model = Model(nnet.with_state_dict({"sum.params": weights}))
        stream = model.stream(frames_per_chunk=5, sequences=2)
        zeros, ones = np.zeros((5, 4)), np.ones((5, 4))
        first = stream.push_many({"good": zeros, "bad": ones})
        # The part of the map within its loop is a node of its own, see `for_inference`.
        said = "the state of node 'sum.recurrent' of sequence 'bad' overflowed"
        with pytest.raises(RunError, match=said):
            stream.push_many({"good": zeros, "bad": ones})

        assert np.isfinite(first["bad"]).all()
        assert stream.open_sequences == ("good",)
        assert stream.frames_to_outputs("good") == 0
        assert len(stream.push(zeros, sequence="good")) == 10
        assert stream.frames_to_outputs("good") == 5


class TestStates:
    """States that are stored, sent, and continued."""

    @pytest.mark.parametrize("config", [TDNN, RECURRENT, WITH_IVECTOR])
    def test_at_any_time(self, config: str) -> None:
        """A sequence whose state is stored and restored after each push goes on as usual."""
        nnet = network(config)
        model = Model(nnet)
        ivector = frames(1, dim=2)[0] if model.ivector_dim else None
        expected = model.compute(frames(40), ivector, frames_per_chunk=40)
        one, parts, data = model.stream(frames_per_chunk=6), [], b""
        for begin in range(0, 40, 5):
            one = Model(nnet).stream(frames_per_chunk=6) if begin % 2 else one
            if begin:
                one.resume(StreamState.from_bytes(data))
            parts.append(one.push(frames(40)[begin : begin + 5], None if begin else ivector))
            data = one.state().to_bytes()
            one.reset()
        one.resume(StreamState.from_bytes(data), "the last")

        assert_same(np.concatenate([*parts, one.finish("the last")]), expected)

    def test_they_do_not_change(self) -> None:
        """A state is read-only, and a copy of the arrays that it is made of."""
        model = Model(network(RECURRENT))
        stream = model.stream(frames_per_chunk=6)
        stream.push(frames(20))
        state = stream.state()
        own = state.frames.copy()
        changed = attrs.evolve(state, frames=own)
        own[...] = 0.0
        other = model.stream(frames_per_chunk=6)
        other.resume(changed)

        arrays = (state.frames, state.ivectors, state.read_times, state.states[0].rows)
        assert not any(array.flags.writeable for array in arrays)
        assert_same(other.push(frames(20)), stream.push(frames(20)))

    def test_another_process(self, tmp_path: Path) -> None:
        """A sequence can begin in one process and end in another."""
        write_nnet(network(RECURRENT), tmp_path / "final.raw")
        model = load(tmp_path / "final.raw")
        stream = model.stream(frames_per_chunk=6)
        first = stream.push(frames(40)[:17])
        stream.state().save(tmp_path / "state")
        np.save(tmp_path / "frames.npy", frames(40)[17:])
        code = """
import sys, numpy, nnet3 as runtime
folder = sys.argv[1]
stream = runtime.load(f"{folder}/final.raw").stream(frames_per_chunk=6)
stream.resume(runtime.StreamState.load(f"{folder}/state"))
outputs = stream.push(numpy.load(f"{folder}/frames.npy")), stream.finish()
numpy.save(f"{folder}/outputs.npy", numpy.concatenate(outputs))
"""
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

        rest = np.load(tmp_path / "outputs.npy")
        assert_same(np.concatenate([first, rest]), model.compute(frames(40), frames_per_chunk=40))


def changed(state: StreamState, **changes: object) -> StreamState:
    """A state with other fields."""
    return attrs.evolve(state, **changes)
