"""Tests of panels of trainable parameters for the steps of a recurrence."""

import numpy as np
import pytest
import test_known_inputs
from computations import PROJECTED, loop
from nnet3 import CachingCompiler
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.lowering import recurrences
from nnet3_runtime_cuda.lowering.plan import Capabilities, Plan, plan_with
from nnet3_runtime_cuda.lowering.recurrences import Factor, placed

FRAMES, SEQUENCES = 40, 2


def network(begin: int = 0, width: int = 2, delay: int = 1) -> Nnet:
    """The network with these recurrent columns."""
    config = PROJECTED.format(begin=begin, width=width, delay=delay, input_dim=5 + width)
    return parse_config(config, rng=np.random.default_rng(0))


def program(nnet: Nnet, *, derivatives: bool = False) -> NnetComputation:
    """The network's computation over FRAMES frames of SEQUENCES sequences."""
    given = IoSpecification.from_range("input", 0, FRAMES, SEQUENCES, has_deriv=derivatives)
    wanted = IoSpecification.from_range("output", 0, FRAMES, SEQUENCES, has_deriv=derivatives)
    request = ComputationRequest(
        inputs=(given,), outputs=(wanted,), need_model_derivative=derivatives
    )
    return CachingCompiler(nnet).compile(request)


def training_results(nnet: Nnet) -> list[np.ndarray]:
    """Outputs, input derivatives and gradients of two training steps on random numbers."""
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((FRAMES * SEQUENCES, dim), dtype=np.float32) for dim in (5, 3))
    device = DeviceNnet(nnet, trainable=True)
    computer, results = NnetComputer(device, program(nnet, derivatives=True)), []
    for _ in range(2):
        results.append(computer.forward({"input": x})["output"])
        results.append(computer.backward({"output": dy})["input"])
        results.append(device.direction.copy())
        device.take_step()
    return results


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses panels even for a few parameters, whether or not they are faster here."""
    monkeypatch.setattr(recurrences, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(NumpyTape, "gains_by_panels", lambda _, rows: rows > 1)


def _plan(device_nnet: DeviceNnet, computation: NnetComputation) -> Plan:
    capabilities = Capabilities(device_nnet, device_nnet.machine.tape(device_nnet.dtype))
    return plan_with(device_nnet.nnet, computation, capabilities)


@pytest.mark.parametrize("is_backward", [False, True])
def test_steps_of_a_recurrence(is_backward: bool) -> None:
    """Nearly all steps use panels of the recurrent parameters, which are laid out once."""
    nnet = test_known_inputs.network(-1)
    computation = test_known_inputs.program(nnet, derivatives=True)

    plan = _plan(DeviceNnet(nnet, trainable=True), computation)

    gates = nnet.component_index("gates")
    found = [each for each in plan.panels.values() if each[:2] == (gates, is_backward)]
    assert set(found) == {Factor(gates, is_backward, 6)}
    assert len(found) >= test_known_inputs.FRAMES - 4


def test_memory_is_shared() -> None:
    """Panels that are not needed at the same time share memory, the larger ones first."""
    first, second, third = (Factor(number, False, 0) for number in range(3))
    uses = {first: range(40), second: range(40, 80), third: range(20, 60)}

    factors, memory = placed(uses, _size)

    assert [*factors.items()] == [(third, 0), (second, 1), (first, 1)]
    assert memory == (_size(third), _size(second))


def _size(factor: Factor) -> int:
    return 10 + factor.component


@pytest.mark.parametrize("begin", [0, 2])
def test_training_is_the_same(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, derivatives and gradient equal those without panels, after a training step, too."""
    nnet = network(begin)

    ours = training_results(nnet)
    monkeypatch.setattr(recurrences, "FEWEST_IN_PANELS", 10**6)

    for found, expected in zip(ours, training_results(nnet), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_fixed_parameters_are_left_alone() -> None:
    """Fixed parameters are in panels in any case, so the plan has none."""
    nnet = network()
    computation = program(nnet)

    assert _plan(DeviceNnet(nnet), computation).panels == {}


def test_loops_are_left_alone() -> None:
    """Loops get no panels: the next round would need the shared memory again."""
    nnet = network()
    computation = loop(nnet, FRAMES, sequences=SEQUENCES)

    assert _plan(DeviceNnet(nnet, trainable=True), computation).panels == {}
