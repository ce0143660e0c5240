"""Tests of derivatives that are computed after several steps of a recurrence."""

import numpy as np
import pytest
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.lowering import recurrences
from nnet3_runtime_cuda.lowering.plan import plan_with
from stated_capabilities import Stated
from test_known_inputs import FRAMES, SEQUENCES, distinct, network, program


@pytest.mark.parametrize("delay", [-1, 1, -3])
def test_steps_of_a_recurrence(delay: int) -> None:
    """All steps leave the derivative of the layer below to large products."""
    nnet = network(delay)
    gates = nnet.component_index("gates")

    products = distinct(
        plan_with(nnet, program(nnet, derivatives=True), Stated(split=[gates])).late
    )

    steps = [(product.rows(step), step) for product in products for step in product.steps]
    assert sum(rows.stop - rows.start for rows, _ in steps) == FRAMES * SEQUENCES
    assert {step.columns for _, step in steps} == {6}


@pytest.mark.parametrize("delay", [-1, 1, -3])
@pytest.mark.parametrize("rows_at_once", [4, 10, 128])
def test_derivatives_are_the_same(
    delay: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derivatives equal those computed step by step, for any number of rows at once."""
    nnet = network(delay)
    computation = program(nnet, derivatives=True)
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((FRAMES * SEQUENCES, dim), dtype=np.float32) for dim in (5, 4))

    def derivatives() -> tuple[np.ndarray, np.ndarray]:
        device = DeviceNnet(nnet, trainable=True)
        computer = NnetComputer(device, computation)
        computer.forward({"input": x})
        return computer.backward({"output": dy})["input"], device.direction

    monkeypatch.setattr(recurrences, "ROWS_AT_ONCE", rows_at_once)
    d_input, gradient = derivatives()
    monkeypatch.setattr(recurrences, "FEWEST_LATE", 10**6)
    expected_d_input, expected_gradient = derivatives()

    np.testing.assert_allclose(d_input, expected_d_input, rtol=0, atol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-4)


def test_other_components_are_left_alone() -> None:
    """Without affine maps, or without a backward pass, no derivatives are deferred."""
    nnet = network(-1)
    for has_derivatives, split in ((True, ()), (False, (0, 1))):
        computation = program(nnet, derivatives=has_derivatives)

        assert plan_with(nnet, computation, Stated(split=split)).late == {}
