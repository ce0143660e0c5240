"""Recurrences: products before and after all steps, and panels of parameters for the steps."""

import numpy as np
import pytest
from computations import Stated, loop, passes, request
from nnet3 import CachingCompiler
from nnet3_compiler import compile_looped, looped_requests
from nnet3_computation import NnetComputation
from nnet3_computation.commands import DeallocMatrix, NoOperationLabel
from nnet3_descriptors import Nnet
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.lowering import recurrences
from nnet3_runtime_cuda.lowering.plan import Capabilities, Shared, plan_with
from nnet3_runtime_cuda.lowering.recurrences import Factor, StepProduct, placed
from small_networks import network, stacked

FRAMES, SEQUENCES = 40, 2

PROJECTED = stacked(
    5,
    "gates NaturalGradientAffine input-dim=7 output-dim=4",
    "squashed Tanh dim=4",
    "projection NaturalGradientAffine input-dim=4 output-dim=6",
    "top Affine input-dim=12 output-dim=3 "
    "input=Append(projection, IfDefined(Offset(projection, -1)))",
    splice="Append(input, IfDefined(Offset(back, -1)))",
)
"""A projected recurrence: two of six columns go back into it, the layer above reads all."""


def recurrent(delay: int = -1) -> Nnet:
    """A recurrent layer on an affine one."""
    read = f"Append(below, IfDefined(Offset(squashed, {delay})))"
    return network(
        stacked(
            5,
            "below NaturalGradientAffine input-dim=5 output-dim=6",
            f"gates NaturalGradientAffine input-dim=10 output-dim=4 input={read}",
            "squashed Tanh dim=4",
        )
    )


def program(nnet: Nnet, *, training: bool = False) -> NnetComputation:
    """The network's computation over FRAMES frames of SEQUENCES sequences."""
    return CachingCompiler(nnet).compile(request(range(FRAMES), range(FRAMES), training=training))


def distinct(shared: Shared) -> list[StepProduct]:
    """The products that steps share, each once."""
    return list(dict.fromkeys(product for product, _ in shared.values()))


each_delay = pytest.mark.parametrize("delay", [-1, 1, -3])


@each_delay
@pytest.mark.parametrize("training", [False, True])
def test_products_beside_the_steps(delay: int, training: bool) -> None:
    """All steps use large products for their known part, even after the input is freed.

    And they leave the derivative of the layer below to large products.
    """
    nnet = recurrent(delay)
    computation = program(nnet, training=training)

    found = plan_with(nnet, computation, Stated(split=[nnet.component_index("gates")]))

    early, late = distinct(found.early), distinct(found.late)
    assert sum(product.area.rows for product in early) == FRAMES * SEQUENCES
    assert {step.columns for product in (*early, *late) for step in product.steps} == {6}
    freed = {
        computation.submatrices[command.matrix, 0]: at
        for at, command in enumerate(computation.commands)
        if isinstance(command, DeallocMatrix)
    }
    after = [
        [step.position > freed[product.area.matrix] for step in product.steps] for product in early
    ]
    assert any(map(any, after))
    assert not any(each[0] for each in after)
    rows = [product.rows(step) for product in late for step in product.steps]
    assert sum(each.stop - each.start for each in rows) == FRAMES * SEQUENCES * training


def test_other_components_are_left_alone() -> None:
    """Only affine maps can be computed for a part of their columns; without derivatives none is."""
    nnet = recurrent()
    for training in (False, True):
        found = plan_with(nnet, program(nnet, training=training), Stated())
        assert found.early == found.late == {}
    assert plan_with(nnet, program(nnet), Stated(split=(0, 1))).late == {}


@each_delay
@pytest.mark.parametrize("rows_at_once", [4, 6, 10, 128])
@pytest.mark.parametrize("training", [False, True])
def test_values_are_the_same(
    delay: int, rows_at_once: int, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values equal those computed step by step, for any number of rows at once."""
    nnet = recurrent(delay)
    computation = program(nnet, training=training)
    monkeypatch.setattr(recurrences, "CHANGING_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(recurrences, "ROWS_AT_ONCE", rows_at_once)
    both = []
    for fewest in (recurrences.FEWEST_EARLY, 10**6):
        monkeypatch.setattr(recurrences, "FEWEST_EARLY", fewest)
        monkeypatch.setattr(recurrences, "FEWEST_LATE", fewest)
        both.append(passes(NnetComputer(DeviceNnet(nnet, trainable=training), computation)))

    for found, wanted, limit in zip(*both, (1e-6, 1e-5, 1e-4), strict=False):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)


# ---- loops ----

SPLICED = stacked(
    3,
    "affine Affine input-dim=10 output-dim=4",
    "tanh Tanh dim=4",
    "last Affine input-dim=4 output-dim=2",
    splice="Append(Offset(input, -1), input, IfDefined(Offset(tanh, -1)))",
)


def looped_program(nnet: Nnet, chunk: int) -> NnetComputation:
    """The network's computation in chunks, optimized."""
    requests = looped_requests(nnet, chunk)
    return compile_looped(nnet, requests, optimize=lambda compiled: optimize(nnet, compiled))


@pytest.mark.parametrize("chunk", [3, 6])
def test_rounds_of_a_loop(chunk: int) -> None:
    """Each round of an optimized looped computation gives the outputs of all frames at once."""
    nnet = network(SPLICED)
    frames = 6 * chunk
    x = np.random.default_rng(1).standard_normal((frames + 1, 3)).astype(np.float32)
    whole = request(range(-1, frames), range(frames), sequences=1, training=False)
    computer = NnetComputer(nnet, looped_program(nnet, chunk))

    chunks = np.split(x, range(chunk + 1, len(x), chunk))  # the first also has the context
    found = [computer.forward({"input": rows})["output"] for rows in chunks]

    expected = NnetComputer(nnet, CachingCompiler(nnet).compile(whole)).forward({"input": x})
    np.testing.assert_allclose(np.concatenate(found), expected["output"], rtol=0, atol=1e-6)


def test_no_step_reaches_into_a_loop() -> None:
    """Steps before a loop and within it share no product."""
    nnet = network(SPLICED)
    looped = looped_program(nnet, 6)
    label = next(at for at, one in enumerate(looped.commands) if isinstance(one, NoOperationLabel))

    found = plan_with(nnet, looped, Stated(split=[nnet.component_index("affine")])).early

    sides = [{step.position > label for step in product.steps} for product in distinct(found)]
    assert {True} in sides
    assert {False} in sides
    assert {True, False} not in sides


# ---- panels ----


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses panels even for a few parameters, whether or not they are faster here."""
    monkeypatch.setattr(recurrences, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(NumpyTape, "gains_by_panels", lambda _, rows: rows > 1)


def _panels(device_nnet: DeviceNnet, computation: NnetComputation) -> list[Factor]:
    capabilities = Capabilities(device_nnet, device_nnet.machine.tape(device_nnet.dtype))
    return [*plan_with(device_nnet.nnet, computation, capabilities).panels.values()]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("is_backward", [False, True])
def test_panels_of_the_steps(is_backward: bool) -> None:
    """Nearly all steps use panels of the recurrent parameters, which are laid out once."""
    nnet = recurrent()

    panels = _panels(DeviceNnet(nnet, trainable=True), program(nnet, training=True))

    gates = nnet.component_index("gates")
    found = [each for each in panels if each[:2] == (gates, is_backward)]
    assert set(found) == {Factor(gates, is_backward, 6)}
    assert len(found) >= FRAMES - 4


@pytest.mark.usefixtures("_small")
def test_no_panels() -> None:
    """Fixed parameters are in panels in any case; the next round of a loop needs its memory."""
    nnet = recurrent()

    assert _panels(DeviceNnet(nnet), program(nnet)) == []
    looped = loop(nnet, FRAMES, sequences=SEQUENCES)
    assert _panels(DeviceNnet(nnet, trainable=True), looped) == []


@pytest.mark.usefixtures("_small")
def test_memory_is_shared() -> None:
    """Panels that are not needed at the same time share memory, the larger ones first."""
    first, second, third = (Factor(number, False, 0) for number in range(3))
    uses = {first: range(40), second: range(40, 80), third: range(20, 60)}

    factors, memory = placed(uses, lambda factor: 10 + factor.component)

    assert [*factors.items()] == [(third, 0), (second, 1), (first, 1)]
    assert memory == (12, 11)


def trained(nnet: Nnet) -> list[np.ndarray]:
    """Outputs, input derivatives and gradients before and after a training step."""
    device = DeviceNnet(nnet, trainable=True)
    computer = NnetComputer(device, program(nnet, training=True))
    found = passes(computer)
    device.take_step()
    return found + passes(computer)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("begin", [0, 2])
def test_training_by_panels(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, derivatives and gradient equal those without panels, after a training step, too."""
    back = f"dim-range-node name=back input-node=projection dim-offset={begin} dim=2\n"
    nnet = network(PROJECTED + back)

    ours = trained(nnet)
    monkeypatch.setattr(recurrences, "FEWEST_IN_PANELS", 10**6)

    for found, expected in zip(ours, trained(nnet), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
