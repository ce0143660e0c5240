"""Model: chunks, i-vectors, priors, vectors for whole utterances, threads, and errors."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from model_cases import Counted, assert_same, frames
from nnet3 import (
    ChunkOptions,
    EvenSegmentOptions,
    Model,
    ScoreOptions,
    SegmentOptions,
    chunks,
    computer_pool,
    load,
)
from nnet3_computation import ComputationRequest
from nnet3_descriptors import ModelFileError, write_nnet
from nnet3_runtime_cuda import NnetComputer, RunError
from small_networks import WITH_IVECTOR, network, stacked
from threadpoolctl import threadpool_info

TDNN = stacked(
    4,
    "affine Affine input-dim=12 output-dim=5",
    "relu RectifiedLinear dim=5",
    "last Affine input-dim=10 output-dim=3 input=Append(relu, Offset(relu, 3))",
    splice="Append(Offset(input, -2), input, Offset(input, 1))",
)

LARGE = stacked(2, "scale FixedScale dim=2 scale=1e30")

ONE_COLUMN = "dim-range-node name=part input-node=input dim-offset=1 dim=1\n" + stacked(
    3,
    "sigmoid Sigmoid dim=1",
    "last Linear input-dim=4 output-dim=2 input=Append(input, sigmoid)",
    splice="part",
)

KALDI_MEAN = [-1.193738, 1.820539, -0.256609]

POOLING = stacked(
    4,
    "statistics StatisticsExtraction input-dim=4 include-variance=false",
    "pooling StatisticsPooling input-dim=5 left-context=1000 right-context=1000",
).replace("output input=pooling", "output input=Round(pooling, 1000)")


def blas_threads() -> set[int]:
    """The numbers of threads that the BLAS libraries of this process may use now."""
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


class TestChunks:
    """The size of chunks changes outputs only where it does so in Kaldi."""

    def test_one_column_of_four(self) -> None:
        """A sigmoid of one column of a matrix of four is applied to each element."""
        model = Model(network(ONE_COLUMN))
        linear = model.nnet.component("last").params
        x = frames(9, dim=3)
        y = np.column_stack((x, 1.0 / (1.0 + np.exp(-x[:, 1].astype(float)))))

        assert_same(model.compute(x), y @ linear.T)

    def test_few_shapes_are_compiled(self) -> None:
        """Chunks of one shape share a computation; the number of kept computations is limited."""
        model = Model(network(TDNN), capacity=2)
        for count in (50, 100, 150, 31, 32, 33):
            model.compute(frames(count))
        seconds = model.compile_seconds
        model.compute(frames(33))

        assert model.compile_seconds == seconds > 0

    def test_compile_seconds_while_an_output_is_made(self) -> None:
        """Another thread may make the network of another output meanwhile."""
        model = Model(network(TDNN))
        model.compute(frames(33), output="relu")

        class Pool:
            @property
            def compile_seconds(self) -> float:
                return float(len(model.compute(frames(33), output="affine")))

        model._others["relu"]._pool = Pool()
        assert model.compile_seconds >= 33

    def test_memory_of_many_shapes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The memory of kept computations for different shapes is limited."""
        counted, model = Counted(monkeypatch), Model(network(POOLING))
        model.xvector(frames(500))
        monkeypatch.setattr(computer_pool, "MOST_BYTES", 3 * counted.of_computers())
        for count in range(400, 500):
            model.xvector(frames(count))

        assert len(counted.computers) == 101
        assert 2 < sum(each() is not None for each in counted.computers) < 6
        assert counted.of_computers() <= computer_pool.MOST_BYTES


class TestIvectors:
    """One i-vector for the utterance, or a row for each period."""

    def test_nodes_that_no_output_needs_do_not_change_chunks(self) -> None:
        """As in Kaldi's tools, chunks begin at multiples of the modulus of the nodes in use."""
        unused = "component-node name=unused component=noop input=Round(input, 7)\n"
        unused = f"component name=noop type=NoOpComponent dim=4\n{unused}"
        options = {"online_ivectors": frames(4, dim=2, seed=1), "online_ivector_period": 10}
        model, without = Model(network(WITH_IVECTOR + unused)), Model(network(WITH_IVECTOR))

        assert (model.nnet.modulus, model.modulus, without.modulus) == (7, 1, 1)
        np.testing.assert_array_equal(
            model.compute(frames(40), frames_per_chunk=10, **options),
            without.compute(frames(40), frames_per_chunk=10, **options),
        )
        assert model.stream(frames_per_chunk=10).chunk_size == 10

    def test_period_of_others(self) -> None:
        """A single i-vector serves the whole utterance, whatever the period."""
        model = Model(network(WITH_IVECTOR))
        features, ivector = frames(500), frames(1, dim=2)[0]

        np.testing.assert_array_equal(
            model.compute(features, ivector, online_ivector_period=1),
            model.compute(features, ivector),
        )


class TestResult:
    """Priors, scale, exponential."""

    def test_order_of_operations(self) -> None:
        """The result is exp(scale * (output - log prior))."""
        priors = np.array([0.5, 0.3, 0.2])
        model = Model(network(TDNN), priors=priors)

        actual = model.compute(frames(9), use_priors=True, acoustic_scale=0.1, apply_exp=True)

        expected = np.exp(0.1 * (model.compute(frames(9)) - np.log(priors)))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)

    def test_priors_are_copied(self) -> None:
        """A model keeps its priors when the caller's array changes."""
        priors = np.array([0.5, 0.3, 0.2], np.float32)
        model = Model(network(TDNN), priors=priors)
        expected = model.compute(frames(9), use_priors=True)
        priors[...] = 0.1

        np.testing.assert_array_equal(model.compute(frames(9), use_priors=True), expected)
        assert not model.priors.flags.writeable


class TestErrors:
    """Errors do not depend on settings."""

    def test_settings_of_numpy(self) -> None:
        """Neither results nor errors depend on what NumPy does about overflow and underflow."""
        nnet, priors = network(TDNN), [0.5, 1e-300, 0.2]
        outputs = Model(nnet).compute(frames(60))
        scale = -88.0 / outputs.flat[np.abs(outputs).argmax()]  # exp(-88) is not a normal number
        expected = Model(nnet).compute(frames(60), acoustic_scale=scale, apply_exp=True)
        with np.errstate(all="raise"):
            model = Model(nnet, priors=priors)
            stream = model.stream(acoustic_scale=scale, apply_exp=True)
            small = frames(60).astype(np.float64) * 1e-300
            [(_, found)] = model.compute_many([("a", small)], acoustic_scale=np.float16(1e-5))
            with pytest.raises(RunError, match="prior 1 must be a positive number"):
                model.compute(small, use_priors=True)
            again = model.compute(frames(60), acoustic_scale=scale, apply_exp=True)
            streamed = stream.push(frames(60))

        assert len(found) == 60
        np.testing.assert_array_equal(again, expected)
        np.testing.assert_allclose(streamed, expected[: len(streamed)], rtol=1e-4)


class TestVectors:
    """One vector for each utterance."""

    @pytest.mark.parametrize(
        ("options", "used"),
        [
            ({"chunk_size": 10, "min_chunk_size": 1}, range(25)),
            ({"chunk_size": 10, "min_chunk_size": 6, "pad_input": False}, range(20)),
            ({"min_chunk_size": 28}, [0, *range(25), 24, 24]),
        ],
        ids=["chunks weigh by their lengths", "short chunks are left out", "padding repeats ends"],
    )
    def test_means(self, options: dict[str, int], used: Sequence[int]) -> None:
        """The vector is the pooled mean of the frames that are used."""
        features = frames(25)

        found = Model(network(POOLING)).xvector(features, **options)

        assert_same(found, features[used].mean(axis=0))

    @pytest.mark.parametrize(
        ("total", "chunk_size", "context", "starts"),
        [
            (30, 40, 3, [0]),
            (40, 40, 3, [0]),
            (80, 40, 0, [0, 40]),
            (85, 40, 0, [1, 43]),
            (100, 40, 0, [0, 30, 60]),
            (200, 40, 7, [0, 32, 64, 96, 128, 160]),
        ],
    )
    def test_even_chunks(
        self, total: int, chunk_size: int, context: int, starts: list[int]
    ) -> None:
        """Chunks of one length cover an utterance evenly, with small gaps or overlaps."""
        features = np.arange(4 * total, dtype=np.float32).reshape(total, 4)
        options = EvenSegmentOptions(chunk_size=chunk_size, context=context)

        parts = options.cut(features)

        assert [int(part[0, 0]) // 4 for part in parts] == starts
        padded = [options.padded(part) for part in parts]
        assert {len(part) for part in padded} == {chunk_size}
        np.testing.assert_array_equal(padded[-1][-1], features[starts[-1] + len(parts[-1]) - 1])

    @pytest.mark.parametrize("total", range(41, 400, 7))
    def test_even_chunks_weigh_frames_alike(self, total: int) -> None:
        """The variance of a sum over the chunks is the least of both numbers of chunks."""
        starts = EvenSegmentOptions(chunk_size=40, context=6)._starts(total)

        used = total - 6
        counts = np.zeros(used)
        for start in starts:
            counts[start : start + 34] += 1
        few, many = used // 34, used // 34 + 1
        twice = many * 34 - used
        assert counts.sum() == 34 * len(starts)
        assert len(starts) in (few, many)
        assert (counts**2).sum() / counts.sum() ** 2 == pytest.approx(
            min(1 / (few * 34), (used - twice + 4 * twice) / (many * 34) ** 2)
        )
        distances = np.diff(starts)
        assert distances.max(initial=0) - distances.min(initial=total) <= 1

    def test_the_mean_over_even_chunks(self) -> None:
        """Each chunk counts alike."""
        model, features = Model(network(POOLING)), frames(85)
        options = EvenSegmentOptions(chunk_size=40, pad_input=False)

        work = model.xvector_work(features, options)
        for task in work.tasks:
            task()

        expected = (features[1:41].mean(axis=0) + features[43:83].mean(axis=0)) / 2
        assert_same(work.finish(), expected)

    def test_small_integers_of_numpy(self) -> None:
        """A chunk size may be an integer of eight bits, and frames more than these can count."""
        features, model = frames(150), Model(network(POOLING))

        np.testing.assert_array_equal(
            model.xvector(features, chunk_size=np.int8(30), min_chunk_size=np.int8(20)),
            model.xvector(features, chunk_size=30, min_chunk_size=20),
        )


class TestUntrained:
    """Batch-norm without statistics."""

    NETWORK = stacked(3, "norm BatchNorm dim=3")

    def test_draws_what_kaldi_draws(self) -> None:
        """The first statistics are numbers of glibc's generators with their default seed."""
        for loader in Model, load:
            with pytest.warns(UserWarning, match="not trained: .* 'norm' has no s") as found:
                model = loader(network(self.NETWORK))

            assert Path(found[0].filename) == Path(__file__)
        assert model.untrained == ("norm",)
        norm = model.nnet.component("norm")
        np.testing.assert_allclose(norm.stats_mean, KALDI_MEAN, rtol=1e-5)

    def test_trained_networks_are_left_alone(self) -> None:
        """A component with statistics keeps them."""
        nnet = network(self.NETWORK)
        norm = nnet.component("norm").replace(
            count=10.0, stats_mean=np.ones(3), stats_var=np.full(3, 4.0)
        )
        model = Model(nnet.with_components({"norm": norm}))

        assert model.untrained == ()
        np.testing.assert_allclose(
            model.compute(np.full((2, 3), 5.0)), np.full((2, 3), 2.0), rtol=1e-3
        )


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_a_model(threads: int) -> None:
    """Several callers have the outputs of one, bit by bit, whether or not chunks have threads."""
    utterances = [frames(1 + n % 27, seed=n) for n in range(60)]
    alone, shared = (Model(network(TDNN), threads=count) for count in (1, threads))

    def outputs(model: Model, pool: ThreadPoolExecutor) -> list[np.ndarray]:
        return list(pool.map(partial(model.compute, frames_per_chunk=5), utterances))

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(8) as several:
        for expected, found in zip(outputs(alone, one), outputs(shared, several), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_tasks_in_any_order() -> None:
    """The tasks of an utterance can run in any order, and on any threads."""
    model, options = Model(network(TDNN)), {"frames_per_chunk": 7, "frame_subsampling_factor": 3}
    work = model.compute_work(
        frames(50), None, None, ChunkOptions(**options), ScoreOptions(apply_exp=True)
    )
    pooling = Model(network(POOLING))
    segments = SegmentOptions(chunk_size=20, min_chunk_size=15)
    vector_work = pooling.xvector_work(frames(50), segments)

    with ThreadPoolExecutor(3) as pool:
        for task in reversed([*work.tasks, *vector_work.tasks]):
            pool.submit(task)

    assert len(work.tasks) == 6
    np.testing.assert_array_equal(
        work.finish(), model.compute(frames(50), apply_exp=True, **options)
    )
    np.testing.assert_array_equal(
        vector_work.finish(), pooling.xvector(frames(50), chunk_size=20, min_chunk_size=15)
    )


@pytest.mark.parametrize("chunk_size", [-1, 10, 7])
def test_vectors_of_several_threads(chunk_size: int) -> None:
    """Vectors of several threads are those of one, too."""
    alone, shared = (Model(network(POOLING), threads=threads) for threads in (1, 2))
    options = {"chunk_size": chunk_size, "min_chunk_size": 5}

    np.testing.assert_array_equal(
        shared.xvector(frames(34), **options), alone.xvector(frames(34), **options)
    )


def test_interrupted_computers_are_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run has no effect on the next one."""
    model = Model(network(TDNN))
    computers: list[NnetComputer] = []
    forward = NnetComputer.forward

    def interrupted_once(
        computer: NnetComputer, inputs: Mapping[str, np.ndarray], *, copies: bool
    ) -> object:
        computers.append(computer)
        if len(computers) == 1:
            raise KeyboardInterrupt
        return forward(computer, inputs, copies=copies)

    monkeypatch.setattr(NnetComputer, "forward", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        model.compute(frames(9))

    np.testing.assert_array_equal(model.compute(frames(9)), Model(network(TDNN)).compute(frames(9)))
    assert computers[1] is not computers[0]


def test_computers_share_their_memory() -> None:
    """Computers that run in turn lie in one workspace, also after one failed."""
    model = Model(network(TDNN))
    expected = {count: Model(network(TDNN)).compute(frames(count)) for count in (40, 50, 60)}
    for _ in range(2):
        with pytest.raises(RunError):
            model.compute(np.full((45, 4), 3e38, np.float32))
        for count, outputs in expected.items():
            np.testing.assert_array_equal(model.compute(frames(count)), outputs)

    workspaces = {bound.workspace for idle in model._pool._idle.values() for bound in idle}
    assert len(workspaces) == 1 == len(model._pool._free)


def test_interrupted_comparisons_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model computes as before after Ctrl-C came while it looked for a computer."""
    model, equal = Model(network(TDNN)), ComputationRequest.__eq__
    expected = model.compute(frames(120))
    for place in range(12):
        comparisons = itertools.count()

        def interrupted(
            request: ComputationRequest,
            other: object,
            place: int = place,
            comparisons: Iterator[int] = comparisons,
        ) -> bool:
            if next(comparisons) == place:
                raise KeyboardInterrupt
            return equal(request, other)

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(ComputationRequest, "__eq__", interrupted)
            model.compute(frames(120))

        np.testing.assert_array_equal(model.compute(frames(120)), expected)


def test_repr() -> None:
    """The repr of a model states its inputs and outputs."""
    assert repr(Model(network(TDNN))) == "<Model: 4 -> 3 columns, context 2 + 4 frames>"
    assert repr(Model(network(WITH_IVECTOR))).startswith("<Model: 4 + i-vector 2 -> 3 columns")


@pytest.mark.parametrize(
    "form", [np.float64, np.asfortranarray, np.ndarray.tolist, list, lambda x: x.repeat(2, 0)[::2]]
)
def test_forms_of_features(form: Callable[[np.ndarray], object]) -> None:
    """Features can have any numeric type and any memory layout."""
    model, features = Model(network(TDNN)), frames(9)

    np.testing.assert_array_equal(model.compute(form(features)), model.compute(features))


def test_outputs_that_nobody_asks_for_are_not_prepared() -> None:
    """The network that computes has no other output, and no component that only that needs."""
    other = "output-node name=other input=side\n"
    component = "component name=side type=AffineComponent input-dim=5 output-dim=9\n"
    node = "component-node name=side component=side input=relu\n"
    model = Model(network(TDNN + component + node + other))

    assert "side" not in model._device_nnet.nnet.component_names
    assert "side" in model.nnet.component_names
    assert model.compute(frames(9), output="other").shape == (9, 9)


def test_load(tmp_path: Path) -> None:
    """A model is loaded from a path or an open file; errors name the file."""
    write_nnet(network(TDNN), tmp_path / "final.raw")
    expected = Model(network(TDNN)).compute(frames(5))

    np.testing.assert_array_equal(load(tmp_path / "final.raw").compute(frames(5)), expected)
    data = (tmp_path / "final.raw").read_bytes()
    stream, spread = io.BytesIO(data), np.repeat(np.frombuffer(data, np.uint8), 2)
    np.testing.assert_array_equal(load(memoryview(spread)[::2]).compute(frames(5)), expected)
    np.testing.assert_array_equal(load(stream).compute(frames(5)), expected)
    with pytest.raises(ModelFileError, match=r"nowhere\.raw"):
        load(tmp_path / "nowhere.raw")


# ---- threads of the BLAS library ----


@pytest.mark.parametrize(("threads", "expected"), [(1, {1}), (2, {2})])
def test_products_of_a_model_use_so_many_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, expected: set[int]
) -> None:
    """While a model computes, the BLAS libraries use its number of threads."""
    seen: list[set[int]] = []
    forward = NnetComputer.forward

    def watched(
        computer: NnetComputer, inputs: Mapping[str, np.ndarray], *, copies: bool
    ) -> dict[str, np.ndarray]:
        seen.append(blas_threads())
        return forward(computer, inputs, copies=copies)

    monkeypatch.setattr(NnetComputer, "forward", watched)

    Model(network(TDNN), threads=threads).compute(frames(10))

    assert seen == [expected]


def test_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's memory is what the system reports; unlimited if it reports nothing."""
    assert chunks.memory_of_machine() > 1e8
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": -1, "SC_PAGE_SIZE": 4096}.get)
    assert chunks.memory_of_machine() == math.inf
    monkeypatch.delattr(os, "sysconf")
    assert chunks.memory_of_machine() == math.inf


class OnDevice:
    """An object that claims to be an array on a CUDA device."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0
