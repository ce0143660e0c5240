"""Tests of trainable parameters that the steps of a recurrence find in panels."""

import numpy as np
import pytest
import test_known_inputs
from computations import loop
from nnet3_compiler import NnetComputation
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.lowering import step_panels
from nnet3_runtime_cuda.lowering.lowering import Lowering
from nnet3_runtime_cuda.lowering.step_panels import Factor, StepPanels
from test_deferred_outputs import FRAMES, SEQUENCES, network, program, training_results


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a few parameters are copied, whatever is faster on this machine."""
    monkeypatch.setattr(step_panels, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(step_panels, "gains_by_panels", lambda tape, rows: rows > 1)


def panels_of(computation: NnetComputation, device: DeviceNnet) -> StepPanels:
    """What is planned for a computation."""
    return Lowering(device, computation).steps._panels


@pytest.mark.parametrize("is_backward", [False, True])
def test_steps_of_a_recurrence(is_backward: bool) -> None:
    """Nearly all steps find the parameters of the recurrent columns in panels, once laid out."""
    nnet = test_known_inputs.network(-1)
    computation = test_known_inputs.program(nnet, derivatives=True)

    plan = panels_of(computation, DeviceNnet(nnet, trainable=True))

    gates = nnet.component_index("gates")
    found = [plan.factor_at(position) for position in range(len(computation.commands))]
    factors = [
        factor
        for factor in found
        if factor and (factor.component, factor.is_backward) == (gates, is_backward)
    ]
    assert len(factors) >= test_known_inputs.FRAMES - 4
    assert set(factors) == {Factor(gates, is_backward, 6, (0, 4))}


def test_memory_is_shared() -> None:
    """Panels that are not needed at the same time lie in the same memory, the larger ones first."""
    first, second, third = (Factor(number, False, 0, (0, 4)) for number in range(3))
    uses = {first: range(40), second: range(40, 80), third: range(20, 60)}
    steps = [(position, factor) for factor, positions in uses.items() for position in positions]

    plan = StepPanels(sorted(steps, key=lambda step: step[0] + 0.1 * step[1].component), _size)

    buffers = [plan._buffers[factor] for factor in (first, second, third)]
    assert buffers[0] is buffers[1]
    assert buffers[1] is not buffers[2]
    assert [buffer.size for buffer in buffers] == [_size(second), _size(second), _size(third)]


def _size(factor: Factor) -> int:
    return 10 + factor.component


@pytest.mark.parametrize("begin", [0, 2])
def test_training_is_the_same(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, derivatives and gradient are those of steps without, also with other parameters."""
    nnet = network(begin)

    ours = training_results(nnet)
    monkeypatch.setattr(step_panels, "FEWEST_STEPS", 10**6)

    for found, expected in zip(ours, training_results(nnet), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_fixed_parameters_are_left_alone() -> None:
    """Parameters that do not change lie in panels anyhow."""
    nnet = network()
    computation = program(nnet)

    plan = panels_of(computation, DeviceNnet(nnet))

    assert all(plan.factor_at(at) is None for at in range(len(computation.commands)))


def test_loops_are_left_alone() -> None:
    """In a loop, memory that is shared would be needed again in the next round."""
    nnet = network()
    computation = loop(nnet, FRAMES, sequences=SEQUENCES)

    plan = panels_of(computation, DeviceNnet(nnet, trainable=True))

    assert all(plan.factor_at(at) is None for at in range(len(computation.commands)))
