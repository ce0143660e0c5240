"""LF-MMI compared with sums over all paths and with finite differences, and its failures."""

from __future__ import annotations

import copy
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import attrs
import numpy as np
import pytest
from chain_cases import denominator, end_to_end, paths, supervision
from nnet3_descriptors import parse_config, vectorize
from nnet3_training import (
    ChainObjective,
    ChainOptions,
    ChainSupervision,
    ChainTraining,
    DenominatorGraph,
    ExampleInput,
    ExampleOutput,
    Fst,
    Trainer,
    TrainerOptions,
    TrainingExample,
    compute_chain_prob,
)
from nnet3_training.chain.denominator import ArrayModules
from small_networks import stacked

PDFS = 5
OPTIONS = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.01, xent_regularize=0.1)


def objective(seed: int = 0, options: ChainOptions = OPTIONS) -> ChainObjective:
    """An objective with a small random denominator."""
    return ChainObjective(denominator(np.random.default_rng(seed)), options, num_pdfs=PDFS)


def log_prob_of_all_paths(fst: Fst, starts: np.ndarray, leak: np.ndarray, output: np.ndarray):
    """The log-probability of a sequence by dense matrices, one for each frame."""
    vector = starts
    probs = np.exp(-fst.costs.astype(np.float64))
    for row in output:
        matrix = np.zeros((fst.num_states, fst.num_states))
        np.add.at(matrix, (fst.sources, fst.destinations), probs * np.exp(row[fst.labels - 1]))
        vector = (vector @ leak) @ matrix
    return vector


def test_denominator_is_a_sum_over_paths() -> None:
    """The log-probability is that of a product of dense matrices, one of which is the leak."""
    rng = np.random.default_rng(1)
    fst, output = denominator(rng), rng.standard_normal((6 * 3, PDFS))
    graph = DenominatorGraph(fst, PDFS)
    initial = graph.initial_probs.astype(np.float64)
    leak = np.eye(fst.num_states) + 0.1 * np.ones((fst.num_states, 1)) * initial

    result = graph.forward_backward(output, 3, 0.1)

    ends = [
        log_prob_of_all_paths(fst, initial, leak, output[sequence::3]) @ leak
        for sequence in range(3)
    ]
    assert result.is_sound
    assert result.log_prob == pytest.approx(sum(np.log(end.sum()) for end in ends), rel=1e-9)
    np.testing.assert_allclose(result.derivative.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("make", [supervision, end_to_end])
@pytest.mark.parametrize("seed", range(3))
def test_derivative(make, seed: int) -> None:
    """In double precision, the derivative agrees with finite differences, with and without l2."""
    rng = np.random.default_rng(seed)
    known, chain = make(rng), objective(seed)
    output = 2.0 * rng.standard_normal((12, PDFS))

    def value(shifted: np.ndarray) -> float:
        result = chain.compute(known, shifted, derivative=False)
        return result.objective + result.l2_term

    derivative = chain.compute(known, output).derivative
    for row, column in np.ndindex(output.shape):
        step = np.zeros_like(output)
        step[row, column] = 1e-5
        slope = (value(output + step) - value(output - step)) / 2e-5
        assert derivative[row, column] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("make", [supervision, end_to_end])
def test_numerator_is_a_sum_over_paths(make) -> None:
    """The posteriors of the numerator are the derivative of the sum over each FST's paths."""
    rng = np.random.default_rng(3)
    known, chain = make(rng, sequences=2), objective()
    output = rng.standard_normal((8, PDFS))
    result = chain.compute(known, output)
    denominators = chain.graph.forward_backward(output, 2, 0.1)

    parts = known.e2e_fsts
    if known.fst is not None:
        again = np.random.default_rng(3)
        parts = [paths(again, frames=4, pdfs=PDFS) for _ in range(2)]
    total = 0.0
    for sequence, fst in enumerate(parts):
        start = np.eye(fst.num_states)[0]
        end = log_prob_of_all_paths(fst, start, np.eye(fst.num_states), output[sequence::2])
        total += np.log(end @ np.exp(-fst.final_costs.astype(np.float64)))
    assert result.objective == pytest.approx(0.5 * (total - denominators.log_prob), rel=1e-6)
    np.testing.assert_allclose(result.xent_derivative.sum(axis=1), 0.5, rtol=1e-9)


def test_sequences_that_hang_together() -> None:
    """With several states between two sequences, the result is that of one long path."""
    rng = np.random.default_rng(4)
    fst = paths(rng, frames=8, pdfs=PDFS)
    two = ChainSupervision(num_sequences=2, frames_per_sequence=4, label_dim=PDFS, fst=fst)
    one = ChainSupervision(frames_per_sequence=8, label_dim=PDFS, fst=fst)
    output = rng.standard_normal((8, PDFS))
    in_order = output.reshape(4, 2, PDFS).transpose(1, 0, 2).reshape(8, PDFS)
    chain = objective()

    found = chain.compute(two, output).xent_derivative
    wanted = chain.compute(one, in_order).xent_derivative

    np.testing.assert_allclose(
        found.reshape(4, 2, PDFS).transpose(1, 0, 2).reshape(8, PDFS), wanted, atol=1e-12
    )


def test_precision() -> None:
    """Single precision agrees with double precision, with many sequences and far outputs."""
    rng = np.random.default_rng(5)
    known = supervision(rng, frames=30, sequences=40)
    output = (10.0 * rng.standard_normal((1200, PDFS))).astype(np.float32)
    chain = objective()

    single, double = chain.compute(known, output), chain.compute(known, output.astype(np.float64))

    assert single.derivative.dtype == np.float32
    assert double.derivative.dtype == np.float64
    assert single.objective == pytest.approx(double.objective, rel=1e-5)
    np.testing.assert_allclose(single.derivative, double.derivative, atol=1e-4)


def test_out_of_range() -> None:
    """Outputs beyond 30 are pulled back in proportion, and cut off for the denominator."""
    rng = np.random.default_rng(6)
    known, output = supervision(rng), rng.standard_normal((12, PDFS))
    output[0, 0], output[1, 1] = 35.0, -40.0
    pulled = objective(options=ChainOptions(out_of_range_regularize=0.5))
    plain = objective(options=ChainOptions(out_of_range_regularize=0.0))

    difference = pulled.compute(known, output).derivative - plain.compute(known, output).derivative

    expected = np.zeros_like(output)
    expected[0, 0], expected[1, 1] = -2.5, 5.0
    np.testing.assert_allclose(difference, expected, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_failure(value: float, caplog: pytest.LogCaptureFixture) -> None:
    """Infinite outputs and NaN give -10 per frame, no derivative, a warning, and are counted."""
    known, chain = supervision(np.random.default_rng(7)), objective()
    output = np.zeros((12, PDFS), dtype=np.float32)
    output[3, 2] = value

    with caplog.at_level(logging.WARNING):
        result = chain.compute(known, output)

    assert not result.is_sound
    assert (result.objective, result.weight, result.l2_term) == (-60.0, 6.0, 0.0)
    assert not result.derivative.any()
    assert not result.xent_derivative.any()
    assert chain.num_failed == 1
    assert "counts as -10 per frame" in caplog.text


# ---- as the objective of a trainer ----

NETWORK = stacked(
    3,
    "a NaturalGradientAffine input-dim=3 output-dim=5 learning-rate=0.05",
    "x NaturalGradientAffine input-dim=3 output-dim=5 learning-rate=0.05 input=input",
    "s LogSoftmax dim=5",
).replace("name=output ", "name=output-xent ")
NETWORK += "output-node name=output input=a\n"


def example(rng: np.random.Generator) -> TrainingExample:
    """Three sequences of four output frames, with three input frames for each."""
    known = supervision(rng)
    indexes = np.array([(n, 3 * t, 0) for t in range(4) for n in range(3)], dtype=np.int32)
    frames = [rng.standard_normal((10, 3)) for _ in range(3)]
    return TrainingExample(
        inputs=[ExampleInput.from_sequences("input", frames)],
        outputs=[ExampleOutput(name="output", indexes=indexes, supervision=known)],
    )


def test_a_pickled_graph() -> None:
    """A pickled graph has nothing that it makes when it is used."""
    rng = np.random.default_rng(3)
    graph, output = DenominatorGraph(denominator(rng), PDFS), rng.standard_normal((12, PDFS))
    stored = pickle.dumps(graph)
    graph.forward_backward(output, 3, 0.1)

    assert pickle.dumps(graph) == stored


def test_threads_share_a_graph() -> None:
    """Threads that compute with one graph, or with a copy of it, get what one thread gets."""
    rng = np.random.default_rng(3)
    graph = DenominatorGraph(denominator(rng), PDFS)
    outputs = [rng.standard_normal((400, PDFS)) for _ in range(4)]
    expected = [graph.forward_backward(output, 4, 0.1).log_prob for output in outputs]

    def computed(number: int) -> float:
        other = copy.deepcopy(graph) if number == 3 else graph
        return other.forward_backward(outputs[number % 4], 4, 0.1).log_prob

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(computed, range(80))) == expected * 20


def test_results_are_waited_for_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may work in the memory that threads share until its results have come."""
    rng = np.random.default_rng(3)
    graph = DenominatorGraph(denominator(rng), PDFS)
    numbers, turns = ArrayModules.numbers, []

    def waited(modules: ArrayModules, values: list[object]) -> list[float]:
        turns.append(graph._turn.locked())
        return numbers(modules, values)

    monkeypatch.setattr(ArrayModules, "numbers", waited)
    graph.forward_backward(rng.standard_normal((12, PDFS)), 4, 0.1)

    assert turns == [True]


def test_training() -> None:
    """Steps raise the objective; an evaluation agrees with the objective of the first step."""
    rng = np.random.default_rng(9)
    nnet = parse_config(NETWORK, rng=rng)
    training = ChainTraining(nnet, denominator(rng), OPTIONS)
    trainer = Trainer(nnet, TrainerOptions(max_param_change=0.5), objective=training)
    each = example(rng)
    before = compute_chain_prob(nnet, training, [each])

    results = [trainer.train_minibatch(each) for _ in range(30)]

    assert list(results[0]) == ["output", "output-xent"]
    for name, first in results[0].items():
        assert before[name].total == pytest.approx(first.total, rel=1e-5)
    assert results[-1]["output"].total > results[0]["output"].total + 0.5
    assert trainer.objectives["output"].auxiliary < 0.0


def test_weights_of_frames() -> None:
    """Derivatives are multiplied by the weights of frames on request."""
    rng = np.random.default_rng(10)
    nnet = parse_config(NETWORK, rng=rng)
    fst, each = denominator(rng), example(rng)
    (output,) = each.outputs
    unseen = attrs.evolve(output.supervision, deriv_weights=np.zeros(12))
    each = attrs.evolve(each, outputs=[attrs.evolve(output, supervision=unseen)])

    for applies in (True, False):
        options = attrs.evolve(OPTIONS, apply_deriv_weights=applies)
        trainer = Trainer(nnet, objective=ChainTraining(nnet, fst, options))
        trainer.train_minibatch(each)
        assert np.array_equal(vectorize(trainer.nnet), vectorize(nnet)) == applies
