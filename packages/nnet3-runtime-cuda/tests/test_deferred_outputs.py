"""Tests of columns of a step's output that are computed after several steps of a recurrence."""

import numpy as np
import pytest
from computations import PROJECTED, loop
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3 import CachingCompiler
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, check_plan
from nnet3_runtime_cuda.lowering.kernel_capabilities import KernelCapabilities
from nnet3_runtime_cuda.lowering.plan import deferred_outputs
from nnet3_runtime_cuda.lowering.plan.make import plan_with
from nnet3_runtime_cuda.lowering.plan.plan import DeferredOutput
from stated_capabilities import Stated

FRAMES, SEQUENCES = 40, 2


GAINS = KernelCapabilities.gains_by_deferring


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a few parameters are put off, trained ones, too."""
    monkeypatch.setattr(deferred_outputs, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(KernelCapabilities, "gains_by_deferring", lambda *_: True)


def network(begin: int = 0, width: int = 2, delay: int = 1) -> Nnet:
    """The network, with these columns in the recurrence."""
    config = PROJECTED.format(begin=begin, width=width, delay=delay, input_dim=5 + width)
    return parse_config(config, rng=np.random.default_rng(0))


def program(nnet: Nnet, *, derivatives: bool = False, start: int = 0) -> NnetComputation:
    """Its computation: all frames are given, those from `start` on are wanted."""
    given_ = IoSpecification.from_range("input", 0, FRAMES, SEQUENCES, has_deriv=derivatives)
    wanted = IoSpecification.from_range("output", start, FRAMES, SEQUENCES, has_deriv=derivatives)
    request = ComputationRequest(
        inputs=(given_,), outputs=(wanted,), need_model_derivative=derivatives
    )
    return CachingCompiler(nnet).compile(request)


def planned(nnet: Nnet, computation: NnetComputation) -> tuple[DeferredOutput, ...]:
    """The outputs put off, of a checked plan with the projection as the only affine map."""
    projection = [nnet.component_index("projection")]
    plan = plan_with(nnet, computation, Stated(split=projection, deferring=projection))
    check_plan(nnet, computation, plan)
    return plan.outputs


@pytest.mark.parametrize("derivatives", [False, True])
def test_columns_outside_of_the_recurrence(*, derivatives: bool) -> None:
    """All steps put off the columns that only the layer above reads."""
    nnet = network()

    products = planned(nnet, program(nnet, derivatives=derivatives))

    assert sum(product.rows for product in products) == FRAMES * SEQUENCES
    assert {product.split for product in products} == {2}
    assert max(product.rows for product in products) == deferred_outputs.ROWS_AT_ONCE


@given(
    columns=st.tuples(st.integers(0, 5), st.integers(1, 6)).filter(lambda c: sum(c) <= 6),
    delay=st.integers(1, 3),
    start=st.integers(0, FRAMES - 1),
    rows_at_once=st.integers(1, 100),
    fewest=st.integers(1, 3),
)
@settings(max_examples=settings.default.max_examples // 2)
def test_values_are_the_same(
    columns: tuple[int, int], delay: int, start: int, rows_at_once: int, fewest: int
) -> None:
    """Outputs equal those computed step by step, for any number of rows at once."""
    nnet = network(*columns, delay=delay)
    computation = program(nnet, start=start)
    x = np.random.default_rng(1).standard_normal((FRAMES * SEQUENCES, 5), dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred_outputs, "FEWEST_PARAMETERS", 1)
        patch.setattr(deferred_outputs, "FEWEST_STEPS", fewest)
        patch.setattr(deferred_outputs, "ROWS_AT_ONCE", rows_at_once)
        planned(nnet, computation)
        found = NnetComputer(nnet, computation).forward({"input": x})
        patch.setattr(deferred_outputs, "FEWEST_STEPS", 10**6)
        expected = NnetComputer(nnet, computation).forward({"input": x})

    np.testing.assert_allclose(found["output"], expected["output"], rtol=0, atol=1e-6)


def test_training_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, input derivatives and gradients equal those of steps that put nothing off."""
    nnet = network()
    computation = program(nnet, derivatives=True)
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((FRAMES * SEQUENCES, dim), dtype=np.float32) for dim in (5, 3))

    def results() -> list[np.ndarray]:
        device = DeviceNnet(nnet, trainable=True)
        computer, found = NnetComputer(device, computation), []
        for _ in range(2):
            found.append(computer.forward({"input": x})["output"])
            found.append(computer.backward({"output": dy})["input"])
            found.append(device.direction.copy())
            device.take_step()
        return found

    found = results()
    monkeypatch.setattr(deferred_outputs, "FEWEST_STEPS", 10**6)

    for ours, expected in zip(found, results(), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)


def test_rounds_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within each round columns are put off, and the next round goes on from the state."""
    nnet = network()
    computation = loop(nnet, 8)
    assert [product.rows for product in planned(nnet, computation)] == [8, 8]
    chunks = np.random.default_rng(1).standard_normal((6, 8, 5), dtype=np.float32)

    def outputs() -> np.ndarray:
        computer = NnetComputer(nnet, computation)
        rounds = []
        for _ in range(2):
            rounds += [computer.forward({"input": chunk})["output"] for chunk in chunks]
            computer.reset()
        return np.array(rounds)

    found = outputs()
    monkeypatch.setattr(deferred_outputs, "FEWEST_STEPS", 10**6)

    np.testing.assert_allclose(found, outputs(), rtol=0, atol=1e-6)


def test_outputs_that_the_recurrence_reads_as_a_whole() -> None:
    """Nothing is put off if all columns go back into the recurrence."""
    nnet = network(width=6)

    assert planned(nnet, program(nnet)) == ()


def test_many_rows_and_few_parameters_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of many rows, or with few parameters, are computed as they are."""
    nnet = network()
    computation = program(nnet)
    for name, value in (("MOST_ROWS", SEQUENCES - 1), ("FEWEST_PARAMETERS", 17)):
        with monkeypatch.context() as patch:
            patch.setattr(deferred_outputs, name, value)
            assert planned(nnet, computation) == ()
    assert planned(nnet, computation)


def test_other_components_are_left_alone() -> None:
    """Only affine maps that gain have outputs put off."""
    nnet = network()
    projection = [nnet.component_index("projection")]
    for capabilities in (Stated(deferring=projection), Stated(split=projection)):
        assert plan_with(nnet, program(nnet), capabilities).outputs == ()


def test_trained_parameters_are_left_alone() -> None:
    """Trained parameters have panels instead; fixed ones gain on the processor."""
    nnet = network()
    projection = nnet.component_index("projection")
    gains = []
    for trainable in (False, True):
        device = DeviceNnet(nnet, threads=1, trainable=trainable)
        tape = device.machine.tape(device.dtype)
        gains.append(GAINS(KernelCapabilities(device, tape), projection))

    assert gains == [True, False]
