"""Many utterances: equal chunks as one minibatch, results in order, bounded waiting and memory."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from unittest.mock import Mock

import numpy as np
import pytest
import small_networks
from model_cases import Counted, assert_same
from nnet3 import BatchOptions, ChunkOptions, Model, ScoreOptions
from nnet3.batches import larger_chunks, minibatches
from nnet3.batches.larger_chunks import (
    _alike,
    _reads_fixed_frames,
    joined,
    larger,
    request_of,
    rounded_up,
)
from nnet3.batches.minibatches import MinibatchFormer, Run
from nnet3.chunks import Chunk, chunks
from nnet3.computer_pool import ComputerPool
from nnet3.known_results import KnownResults
from nnet3_descriptors import Nnet, Nnet3Error
from nnet3_descriptors.forking import ForkError
from nnet3_runtime_cuda import NnetComputer, RunError
from small_networks import stacked

DIM, IVECTOR_DIM = 3, 2

FEED_FORWARD = "input-node name=ivector dim=2\n" + stacked(
    3,
    "tdnn NaturalGradientAffine input-dim=11 output-dim=8",
    "relu RectifiedLinear dim=8",
    "last NaturalGradientAffine input-dim=16 output-dim=4 input=Append(Offset(relu, -3), relu)",
    splice="Append(Offset(input, -2), input, Offset(input, 3), ReplaceIndex(ivector, t, 0))",
)

WIDTH = 40

WIDE = stacked(
    WIDTH,
    f"tdnn NaturalGradientAffine input-dim={3 * WIDTH} output-dim={WIDTH}",
    f"relu RectifiedLinear dim={WIDTH}",
    splice="Append(Offset(input, -2), input, Offset(input, 2))",
)


def recurrent(offset: int) -> str:
    """A network whose hidden layer reads itself `offset` frames away."""
    return stacked(
        3,
        "hidden NaturalGradientAffine input-dim=9 output-dim=6",
        "bounded Tanh dim=6",
        splice=f"Append(input, IfDefined(Offset(bounded, {offset})))",
    )


def of_hidden(descriptor: str) -> str:
    """A network whose output reads a hidden layer or one that sees the i-vector alone."""
    hidden = "hidden NaturalGradientAffine input-dim=9 output-dim=6"
    of_ivector = "of-ivector NaturalGradientAffine input-dim=2 output-dim=6 input=ivector"
    splice = "Append(Offset(input, -1), input, Offset(input, 1))"
    config = stacked(3, hidden, of_ivector, splice=splice)
    return "input-node name=ivector dim=2\n" + config.replace(
        "name=output input=of-ivector", f"name=output input={descriptor}"
    )


def network(config: str) -> Nnet:
    """A network with random parameters, the same in each run."""
    return small_networks.network(config, seed=1)


def utterances(lengths: list[int]) -> list[tuple[str, np.ndarray]]:
    """Random features of these lengths, with unsorted keys."""
    rng = np.random.default_rng(2)
    return [
        (f"u{97 * number % 101}", rng.standard_normal((length, DIM), dtype=np.float32))
        for number, length in enumerate(lengths)
    ]


LENGTHS = [31, 7, 64, 1, 45, 45, 12, 90, 33, 2, 58, 20]


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(
    ("config", "ivectors"),
    [
        (FEED_FORWARD, "ivectors"),
        (FEED_FORWARD, "online_ivectors"),
        (recurrent(-1), None),
        (recurrent(2), None),
    ],
    ids=["feed-forward", "online i-vectors", "left to right", "right to left"],
)
def test_same_as_one_by_one(config: str, ivectors: str | None, step: int) -> None:
    """Outputs are those of `compute` within 1e-5, in order, and equal for one and two threads.

    So a chunk that a larger program computes has the i-vector of its own middle.
    """
    model, items = Model(network(config)), utterances(LENGTHS)
    rng = np.random.default_rng(3)
    tables = {
        "ivectors": {key: rng.standard_normal(IVECTOR_DIM) for key, _ in items},
        "online_ivectors": {key: rng.standard_normal((len(x) // 4 + 1, 2)) for key, x in items},
    }
    options = {
        "frames_per_chunk": 15,
        "frame_subsampling_factor": step,
        "extra_left_context": 4,
        "extra_left_context_initial": 0,
        "online_ivector_period": 4,
    }
    given = {} if ivectors is None else {ivectors: tables[ivectors]}
    alone, side_by_side = (
        list(model.compute_many(items, threads=threads, **given, **options)) for threads in (1, 2)
    )

    assert [key for key, _ in alone] == [key for key, _ in items]
    for (key, features), (_, found), (_, again) in zip(items, alone, side_by_side, strict=True):
        own = {name: table[key] for name, table in given.items()}
        if "ivectors" in own:
            own["ivector"] = own.pop("ivectors")
        expected = model.compute(features, **own, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize("threads", [1, 2])
def test_features_in_one_buffer(threads: int) -> None:
    """The caller may use one array for all utterances in turn: the model has copies."""
    model = Model(network(FEED_FORWARD))
    items = utterances([20] * 6)
    buffer, ivector = np.empty_like(items[0][1]), np.empty(IVECTOR_DIM, np.float32)

    def in_turn() -> Iterator[tuple[str, np.ndarray]]:
        for number, (key, features) in enumerate(items):
            buffer[:], ivector[:] = features, number
            yield key, buffer

    one_vector = dict.fromkeys([key for key, _ in items], ivector)
    found = list(model.compute_many(in_turn(), ivectors=one_vector, threads=threads))

    for number, ((_, features), (_, outputs)) in enumerate(zip(items, found, strict=True)):
        expected = model.compute(features, np.full(IVECTOR_DIM, number, np.float32))
        np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-5)


def chunk(num_outputs: int) -> Chunk:
    """A chunk with enough context for the networks above."""
    return Chunk(
        first_input=-5,
        num_inputs=num_outputs + 8,
        first_output=0,
        num_outputs=num_outputs,
        last_output=num_outputs - 1,
    )


@pytest.mark.parametrize(
    ("config", "is_larger"),
    [(FEED_FORWARD, True), (recurrent(-1), True), (recurrent(2), False)],
    ids=["feed-forward", "left to right", "right to left"],
)
def test_larger_chunks(config: str, is_larger: bool) -> None:
    """A larger chunk is used only if frames after the chunk cannot change outputs."""
    nnet = network(config)

    found = larger(KnownResults(nnet), chunk(5), 1, 8)

    assert found == (chunk(8) if is_larger else chunk(5))


def test_chunks_of_several_steps() -> None:
    """A larger chunk that was found for one distance between outputs is not used for another."""
    known = KnownResults(network(of_hidden("Sum(hidden, IfDefined(Offset(hidden, 10)))")))
    one, two = (
        Chunk(first_input=-12, num_inputs=30, first_output=0, num_outputs=5, last_output=4 * step)
        for step in (1, 2)
    )

    assert larger(known, one, 1, 6).num_outputs == 6
    # The output at t = 8 reads t = 18, which the larger chunk alone has.
    assert larger(known, two, 2, 6) == two


ENDLESS_IN_A_LARGER_CHUNK = stacked(
    3, "state Tanh dim=3", splice="Sum(ReplaceIndex(input, t, 20), IfDefined(Offset(state, -2)))"
).replace("name=output input=state", "name=output input=Sum(input, IfDefined(state))")
"""The frame 20 is in no chunk of five frames, and in one of fifteen."""

NETWORKS_FOR_JOINING = {
    "feed-forward": (FEED_FORWARD, True),
    "left to right": (recurrent(-1), False),
    "right to left": (recurrent(2), False),
    "frames that may be missing": (of_hidden("Sum(hidden, IfDefined(Offset(hidden, -16)))"), False),
    "the first frame of a chunk": (of_hidden("Sum(hidden, ReplaceIndex(hidden, t, 0))"), False),
    "a vector for all frames": (of_hidden("Sum(hidden, ReplaceIndex(of-ivector, t, 0))"), True),
    "rounded times": (of_hidden("Round(hidden, 5)"), True),
    "a recurrence without an end": (ENDLESS_IN_A_LARGER_CHUNK, False),
    "a vector at the first frame": (of_hidden("Failover(of-ivector, hidden)"), False),
    "a vector for all frames, at any time": (
        of_hidden("Sum(ReplaceIndex(of-ivector, t, 0), Offset(ReplaceIndex(of-ivector, t, 0), 2))"),
        True,
    ),
}


@pytest.mark.parametrize("name", NETWORKS_FOR_JOINING)
def test_joined_chunks(name: str) -> None:
    """Chunks are joined only if each of them reads the rows that it reads alone."""
    config, is_joined = NETWORKS_FOR_JOINING[name]
    nnet = network(config)
    parts, (whole,) = (
        list(chunks(15, ChunkOptions(frames_per_chunk=size), 12, 12)) for size in (5, 15)
    )

    found = joined(KnownResults(nnet), parts, 1)

    assert found == (whole if is_joined else None)


STATISTICS = """
    component name=ex type=StatisticsExtractionComponent input-dim=3 input-period=1 output-period=4
    component name=po type=StatisticsPoolingComponent input-dim=7 input-period=4 left-context=4 \
        right-context=4
    component-node name=ex component=ex input=input
    component-node name=po component=po input=ex
"""

FRAMES_READ = {
    "fixed distances": ("Sum(input, Offset(input, -3))", {1, 4}),
    "optional terms": ("Sum(input, IfDefined(Offset(input, 2)))", {1, 4}),
    "optional terms outside": ("Sum(input, IfDefined(Offset(input, 40)))", {1}),
    "optional terms between": ("Sum(input, IfDefined(Offset(input, 9)))", set()),
    "another term instead": ("Failover(Offset(input, -9), input)", set()),
    "rounded times": ("Round(input, 4)", {4}),
    "in turn": ("Switch(input, Offset(input, 1))", {4}),
    "a fixed frame": ("Sum(input, IfDefined(ReplaceIndex(input, t, 20)))", set()),
    "statistics": ("Append(input, Round(po, 4))", {4}),
}


@pytest.mark.parametrize("name", FRAMES_READ)
def test_frames_that_outputs_read(name: str) -> None:
    """Where one question says that outputs read the same in all chunks, each two chunks do."""
    descriptor, steps = FRAMES_READ[name]
    statistics = STATISTICS if "po" in descriptor else ""
    nnet = network(
        f"input-node name=input dim=3\n{statistics}output-node name=output input={descriptor}"
    )

    for step in (1, 4):
        parts = [
            Chunk(-8, 17 + (count - 1) * step, 0, count, (count - 1) * step)
            for count in range(1, 9)
        ]
        found = _reads_fixed_frames(KnownResults(nnet), parts[2], step, 8)
        pairs = [
            _alike(nnet, parts[few], parts[many], [step * by for by in range(many - few)], step)
            for many in range(8)
            for few in range(many)
        ]

        assert found == (step in steps)
        assert all(pairs) or not found


@pytest.mark.parametrize("size", [1, 2])
def test_ivector_at_the_first_frame_of_a_chunk(size: int) -> None:
    """A chunk in which an output reads only the i-vector is not joined with its neighbours."""
    inputs = "input-node name=input dim=3\ninput-node name=ivector dim=3\n"
    model = Model(network(f"{inputs}output-node name=output input=Failover(ivector, input)"))
    ((_, features),) = utterances([12])
    ivector = np.ones(3, np.float32)
    expected = features.copy()
    expected[::size] = ivector

    ((_, found),) = model.compute_many(
        [("a", features)], ivectors={"a": ivector}, frames_per_chunk=size
    )

    np.testing.assert_array_equal(model.compute(features, ivector, frames_per_chunk=size), expected)
    np.testing.assert_array_equal(found, expected)


def test_chunks_of_one_row() -> None:
    """Two terms that change places are no reason to join: the same rows are read otherwise."""
    # The second chunk reads rows 1, 1 and 0 alone, and 0, 1 and 0 in the larger one.
    nnet = network(of_hidden("Append(ReplaceIndex(hidden, t, 0), hidden, Offset(hidden, -1))"))
    parts = [
        chunk(1)._replace(first_input=first - 5, num_inputs=10, first_output=first)
        for first in (0, 1)
    ]

    assert joined(KnownResults(nnet), parts, 1) is None


@pytest.mark.parametrize(
    ("num_frames", "memory", "numbers"),
    [(64, 512, [4, 1]), (64, 1, [1] * 5), (59, 512, [1] * 4), (150, 512, [4, 4, 1, 1])],
)
def test_runs_of_several_chunks(
    num_frames: int, memory: int, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four full chunks in a row are one run, if a minibatch has memory for four."""
    monkeypatch.setattr(ComputerPool, "bytes_of", lambda *_: 1 << 16)
    model = Model(network(WIDE))
    options = ChunkOptions(frames_per_chunk=15)
    batches = BatchOptions(memory=memory, minibatch_size=5)
    features = np.zeros((num_frames, WIDTH), dtype=np.float32)

    work = model.compute_work(features, None, None, options, ScoreOptions(), batches)

    assert [run.num_chunks for run in work.runs] == numbers


def test_few_lengths() -> None:
    """Each power of two has two lengths, less than 16 rows apart; the largest is a full chunk."""
    large = 1 << 30
    assert sorted({rounded_up(count, 50, large) for count in range(1, 51)}) == [
        *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 50)
    ]
    assert all(0 <= rounded_up(count, 10**6, large) - count < 16 for count in range(1, 5000))


def test_one_length() -> None:
    """A small network computes full chunks: at most 2^22 products are in vain."""
    small = (1 << 22) // 40
    assert {rounded_up(count, 50, small) for count in range(10, 51)} == {50}
    assert [rounded_up(count, 50, small) for count in (4, 9, 51)] == [4, 12, 51]


@pytest.mark.parametrize(
    "layer", ["relu RectifiedLinear dim=40", "lda FixedAffine input-dim=40 output-dim=40"]
)
def test_short_utterances_in_long_chunks(layer: str) -> None:
    """A network without trained parameters does not compute the whole of a chunk of any length."""
    model = Model(network(stacked(40, layer)))
    options = ChunkOptions(frames_per_chunk=10**6)
    features = np.zeros((10, 40), np.float32)

    work = model.compute_work(features, None, None, options, ScoreOptions(), BatchOptions())

    assert [len(run.request.outputs[0].indexes) for run in work.runs] == [12]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"minibatch_size": 8}, [8, 4, 2, 1]),
        ({"minibatch_size": 10, "partial_minibatch_factor": 0.3}, [10, 3, 1]),
        ({"minibatch_size": 8, "partial_minibatch_factor": 0}, [8]),
        ({"minibatch_size": 8, "memory": 24}, [3, 1]),
        ({"minibatch_size": 8, "memory": 1}, [1]),
    ],
)
def test_sizes(options: dict[str, int], sizes: list[int]) -> None:
    """Sizes fall by the factor; the largest (1 MiB a sequence) fits an eighth of the memory."""
    assert BatchOptions(**options).sizes(1 << 20, is_edge=False) == sizes


def test_sizes_of_edges() -> None:
    """First and last chunks whose context differs have their own size."""
    options = BatchOptions(minibatch_size=8, edge_minibatch_size=2)

    assert options.sizes(1 << 20, is_edge=True) == [2, 1]
    assert options.sizes(1 << 20, is_edge=False) == [8, 4, 2, 1]


def test_sizes_of_small_minibatches() -> None:
    """Up to 1 MiB a minibatch is computed whole: another program would take longer to bind."""
    assert BatchOptions().sizes(1 << 17) == [8]
    assert BatchOptions().sizes((1 << 17) + 1) == [8, 4, 2, 1]


def run_of(num_outputs: int) -> Run:
    """A run for tests that compute nothing."""
    request = request_of(chunk(num_outputs), 1, network(FEED_FORWARD))
    return Run(request=request, inputs=dict, take=lambda _: None)


def formed(lengths: list[list[int]], sizes: list[int], frames_ahead: int) -> str:
    """The minibatches for utterances of 10 frames with these chunks, in order.

    A minibatch is written as its runs, utterance.chunk, and a "-" for each sequence that is not
    used; a "|" follows the minibatches that are formed when an utterance comes.
    """
    former: MinibatchFormer[int] = MinibatchFormer(lambda *_: sizes, frames_ahead)
    found = []
    for owner, sizes_of_chunks in enumerate(lengths):
        runs = [run_of(length) for length in sizes_of_chunks]
        for of_owner, size in former.add(owner, 10, runs):
            members = [f"{who}.{number}" for who, number, _ in of_owner]
            found.append("+".join(members + ["-"] * (size - len(members))))
        found.append("|")
    found += [
        "+".join(f"{who}.{number}" for who, number, _ in members) for members, _ in former.flush()
    ]
    return " ".join(found)


def test_minibatches_are_full_or_late() -> None:
    """Equal runs wait for each other, but only for a limited number of other frames."""
    found = formed([[5, 5, 3], [5, 5], [3], [5]], [4, 2, 1], 100)
    assert found == "| 0.0+0.1+1.0+1.1 | | | 0.2+2.0 3.0"
    assert formed([[3], [5], [5], [5]], [4, 2, 1], 15) == "| | 0.0 | 1.0+2.0 3.0 |"


def test_minibatches_are_filled_up() -> None:
    """With only one size, unused sequences fill up the last minibatches."""
    assert formed([[3], [5], [5]], [4], 5) == "0.0+-+-+- | 1.0+-+-+- | 2.0+-+-+- |"


def test_results_come_while_utterances_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless table is computed, and is read ahead only within limits."""
    monkeypatch.setattr(minibatches, "MOST_FRAMES_AHEAD", 500)
    num_read = 0

    def endless() -> Iterator[tuple[str, np.ndarray]]:
        nonlocal num_read
        while True:
            num_read += 1
            yield f"u{num_read}", np.ones((10 + num_read % 7, DIM), dtype=np.float32)

    results = Model(network(recurrent(-1))).compute_many(endless(), frames_per_chunk=10)
    for number, (key, _) in zip(range(1, 500), results, strict=False):
        assert key == f"u{number}"
        assert num_read - number < 2600 / 10, "2,000 frames for a thread, and 500 for company"
    results.close()


POOLING = stacked(
    DIM,
    f"e StatisticsExtraction input-dim={2 * DIM}",
    f"p StatisticsPooling input-dim={4 * DIM + 1} left-context=0 right-context=10000",
    splice="Append(input, Offset(input, 6))",
)


@pytest.mark.parametrize(
    ("method", "last", "message"),
    [
        ("compute_many", ("bad", np.full((9, DIM), np.inf)), "'bad': .*not finite|inf"),
        ("compute_many", 5, "item 2: expected a pair"),
        ("compute_many", OSError("the archive is damaged"), "damaged"),
        ("xvectors", ("bad", np.ones((4, DIM))), "'bad': cannot compute"),
        ("xvectors", ("bad", None), "'bad': .* node 'input'"),
    ],
)
def test_errors_come_after_results(method: str, last: object, message: str) -> None:
    """Results of earlier utterances come first; then an error names the utterance."""

    def items() -> Iterator[object]:
        yield from utterances([20, 30])
        if isinstance(last, OSError):
            raise last
        yield last

    pools = method == "xvectors"
    options = {"min_chunk_size": 1} if pools else {}
    model = Model(network(POOLING if pools else recurrent(-1)))
    results = getattr(model, method)(items(), **options)

    assert [next(results)[0] for _ in range(2)] == [key for key, _ in utterances([20, 30])]
    with pytest.raises(OSError if isinstance(last, OSError) else RunError, match=message):
        next(results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize("threads", [1, 2])
def test_forked_processes(threads: int) -> None:
    """A forked process cannot go on with the results of the first, says so, and can begin anew."""
    model = Model(network(WIDE))
    given = [(str(number), np.ones((300, WIDTH), np.float32)) for number in range(60)]
    results = model.compute_many(given, threads=threads)
    next(results)
    context = multiprocessing.get_context("fork")
    found = context.Queue()

    def go_on() -> None:
        try:
            next(results)
        except Nnet3Error as error:
            found.put((type(error), str(error)))
        found.put(len(list(model.compute_many(given, threads=threads))))

    process = context.Process(target=go_on)
    process.start()
    try:
        kind, message = found.get(timeout=60)
        assert kind is ForkError
        assert message.startswith("the process was forked after results of many utterances")
        assert found.get(timeout=60) == len(given)
        process.join(60)
        assert process.exitcode == 0
        assert len(list(results)) == len(given) - 1
    finally:
        process.kill()


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="has no alarm to end a test that hangs")
@pytest.mark.parametrize("passed", [0, 1, 2])
def test_ctrl_c_that_leaves_a_lock(passed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compute_many` comes back if Ctrl-C comes just after a condition is taken, and leaves it."""
    model = Model(network(WIDE))
    given = [(str(number), np.ones((300, WIDTH), np.float32)) for number in range(9)]
    list(model.compute_many(given))
    enter, taken = threading.Condition.__enter__, []

    def enter_and_be_interrupted(condition: threading.Condition) -> bool:
        is_taken = enter(condition)
        if threading.get_ident() == threading.main_thread().ident:
            taken.append(condition)
            if len(taken) == passed + 1:
                raise KeyboardInterrupt
        return is_taken

    before = signal.signal(signal.SIGALRM, Mock(side_effect=AssertionError))
    signal.alarm(20)
    try:
        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            patched.setattr(threading.Condition, "__enter__", enter_and_be_interrupted)
            list(model.compute_many(given, threads=2))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert len(list(model.compute_many(given))) == len(given)


def test_integers_of_numpy() -> None:
    """Options may be integers of NumPy."""
    model, items = Model(network(recurrent(-1))), utterances([20, 31])
    options = {"frames_per_chunk": 9, "frame_subsampling_factor": 3, "minibatch_size": 2}
    expected = dict(model.compute_many(items, **options))
    found = dict(model.compute_many(items, **{key: np.int64(n) for key, n in options.items()}))

    for key, _ in items:
        np.testing.assert_array_equal(found[key], expected[key])


@pytest.mark.any_versions
class TestMemory:
    """Arrays and computers that are alive stay within their shares of `memory`."""

    @pytest.mark.skipif(
        not getattr(sys, "_is_gil_enabled", lambda: True)(),
        reason="without the interpreter lock, what another thread drops is freed later",
    )
    @pytest.mark.parametrize("threads", [1, 2])
    def test_computers_and_features(self, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """With many lengths, kept computers and frames read ahead stay within the memory.

        Binding a computer first frees others.
        """
        counted = Counted(monkeypatch)
        monkeypatch.setattr(larger_chunks, "MOST_PRODUCTS_IN_VAIN", 0)
        monkeypatch.setattr(minibatches, "SMALL_MINIBATCH", 0)
        model = Model(network(WIDE))
        options = BatchOptions(memory=1)
        most_features = largest = 0
        rng = np.random.default_rng(3)

        def items() -> Iterator[tuple[str, np.ndarray]]:
            nonlocal most_features, largest
            for number in range(120):
                length = int(rng.integers(1, 600))
                array = rng.standard_normal((length, WIDTH), dtype=np.float32)
                counted.features.append(weakref.ref(array))
                largest = max(largest, array.nbytes)
                most_features = max(most_features, counted.of_features())
                yield f"u{number}", array

        for _ in model.compute_many(
            items(), memory=1, threads=threads, minibatch_size=4, frames_per_chunk=400
        ):
            pass

        assert len(counted.computers) > 50
        # The alignment of an arena is unknown before it is bound.
        assert 0.9 * options.computer_bytes < counted.most_of_computers
        assert counted.most_of_computers <= options.computer_bytes + 4096
        # Outputs are as large as features; the oldest and the newest are always alive.
        assert 2 * most_features <= options.waiting_bytes + 2 * (2 * largest)

    def test_what_is_larger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A chunk that needs more than the memory is computed; no other computer is kept."""
        counted = Counted(monkeypatch)
        model = Model(network(WIDE))
        lengths = [100, 3000, 200, 4000, 100]
        rng = np.random.default_rng(3)
        items = [
            (f"u{number}", rng.standard_normal((length, WIDTH), dtype=np.float32))
            for number, length in enumerate(lengths)
        ]

        done = list(model.compute_many(items, memory=1, frames_per_chunk=5000))
        sizes = [each().memory_bytes for each in counted.computers if each() is not None]

        for (_, features), (_, outputs) in zip(items, done, strict=True):
            expected = model.compute(features, frames_per_chunk=5000)
            assert_same(outputs, expected)
        assert len(sizes) == 1
        assert counted.most_of_computers > BatchOptions(memory=1).computer_bytes

    def test_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A block frees computers beyond its limit at once; the smallest of two limits counts."""
        counted = Counted(monkeypatch)
        model = Model(network(WIDE))

        def compute(lengths: range) -> None:
            for length in lengths:
                model.compute(np.zeros((length, WIDTH), np.float32), frames_per_chunk=150)

        compute(range(100, 150))
        all_of_them = counted.of_computers()
        seen = []
        with model._pool.within(all_of_them // 2):
            seen.append(counted.of_computers())
            with model._pool.within(all_of_them // 4):
                seen.append(counted.of_computers())
            compute(range(100, 110))
            seen.append(counted.of_computers())

        half, quarter, again = seen
        assert quarter <= all_of_them // 4 < again <= half <= all_of_them // 2

    @pytest.mark.parametrize(
        ("owner", "method"), [(NnetComputer, "forward"), (ComputerPool, "_keep")]
    )
    def test_run_that_fails(
        self, owner: type, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A computer whose run failed, or that Ctrl-C kept from waiting, no longer counts."""
        model = Model(network(WIDE))

        def fail(*_: object, **__: object) -> None:  # no mock, which would keep the computer
            raise KeyboardInterrupt

        monkeypatch.setattr(owner, method, fail)
        with pytest.raises(KeyboardInterrupt):
            model.compute(np.zeros((100, WIDTH), np.float32))
        gc.collect()

        assert model._pool._bytes == 0

    def test_many_lengths(self) -> None:
        """As many requests are remembered as computers, those that were asked for last."""
        pool = Model(network(FEED_FORWARD), capacity=2)._pool
        first, second, third = (run_of(length).request for length in (5, 6, 7))
        for request in (first, second, first, third):
            assert pool.bytes_of(request) > 0

        assert list(pool._bytes_of) == [first, third]
