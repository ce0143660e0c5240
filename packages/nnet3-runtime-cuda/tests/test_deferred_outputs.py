"""Tests of columns of a step's output that are computed for many steps at once."""

import numpy as np
import pytest
from computations import loop
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.lowering import deferred_outputs
from nnet3_runtime_cuda.lowering.deferred_outputs import DeferredOutputs, plan_deferred_outputs

FRAMES, SEQUENCES = 40, 2

CONFIG = """
input-node name=input dim=5
component name=gates type=NaturalGradientAffineComponent input-dim={input_dim} output-dim=4
component-node name=gates component=gates input=Append(input, IfDefined(Offset(back, -{delay})))
component name=squashed type=TanhComponent dim=4
component-node name=squashed component=squashed input=gates
component name=projection type=NaturalGradientAffineComponent input-dim=4 output-dim=6
component-node name=projection component=projection input=squashed
dim-range-node name=back input-node=projection dim-offset={begin} dim={width}
component name=top type=AffineComponent input-dim=12 output-dim=3
component-node name=top component=top input=Append(projection, IfDefined(Offset(projection, -1)))
output-node name=output input=top
"""
"""A projected recurrence: two of six columns go back into it, all are read by the layer above."""


def network(begin: int = 0, width: int = 2, delay: int = 1) -> Nnet:
    """The network, with these columns in the recurrence."""
    config = CONFIG.format(begin=begin, width=width, delay=delay, input_dim=5 + width)
    return parse_config(config, rng=np.random.default_rng(0))


def program(nnet: Nnet, *, derivatives: bool = False, start: int = 0) -> NnetComputation:
    """Its computation: all frames are given, those from `start` on are wanted."""
    given = IoSpecification.from_range("input", 0, FRAMES, SEQUENCES, has_deriv=derivatives)
    wanted = IoSpecification.from_range("output", start, FRAMES, SEQUENCES, has_deriv=derivatives)
    request = ComputationRequest(
        inputs=(given,), outputs=(wanted,), need_model_derivative=derivatives
    )
    return CachingCompiler(nnet).compile(request)


def planned(nnet: Nnet, computation: NnetComputation) -> list[DeferredOutputs]:
    """What is computed together, with the projection as the only affine map."""
    projection = nnet.component_index("projection")
    plan = plan_deferred_outputs(computation, lambda component: component == projection)
    return list({id(steps): steps for steps in plan.values()}.values())


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


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a few parameters are put off."""
    monkeypatch.setattr(deferred_outputs, "FEWEST_PARAMETERS", 1)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("begin", "later"),
    [(0, [slice(2, 6)]), (4, [slice(0, 4)]), (2, [slice(0, 2), slice(4, 6)])],
)
@pytest.mark.parametrize("derivatives", [False, True])
def test_columns_outside_of_the_recurrence(
    begin: int, later: list[slice], derivatives: bool
) -> None:
    """All steps put off what only the layer above reads; in training their inputs are kept."""
    nnet = network(begin)

    chunks = planned(nnet, program(nnet, derivatives=derivatives))

    assert sum(steps.num_rows for steps in chunks) == FRAMES * SEQUENCES
    for steps in chunks:
        assert steps.now == slice(begin, begin + 2)
        assert list(steps.later) == later
        assert (steps.kept is not None) == derivatives
        assert all(step.position < steps.due <= step.due for step in steps.steps)


@pytest.mark.usefixtures("_small")
def test_unread_columns_are_not_computed() -> None:
    """Steps before the first output do without the columns that only the layer above reads."""
    nnet = network()

    chunks = planned(nnet, program(nnet, start=30))

    unread = [steps for steps in chunks if not steps.later]
    assert sum(steps.num_rows for steps in unread) == 29 * SEQUENCES
    assert sum(steps.num_rows for steps in chunks) == FRAMES * SEQUENCES


@given(
    columns=st.tuples(st.integers(0, 5), st.integers(1, 6)).filter(lambda c: sum(c) <= 6),
    delay=st.integers(1, 3),
    start=st.integers(0, FRAMES - 1),
    rows_at_once=st.integers(1, 100),
)
@settings(max_examples=50)
def test_values_are_the_same(
    columns: tuple[int, int], delay: int, start: int, rows_at_once: int
) -> None:
    """Outputs are those of the computation done step by step, however many rows at once."""
    nnet = network(*columns, delay=delay)
    computation = program(nnet, start=start)
    x = np.random.default_rng(1).standard_normal((FRAMES * SEQUENCES, 5), dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred_outputs, "FEWEST_PARAMETERS", 1)
        patch.setattr(deferred_outputs, "ROWS_AT_ONCE", rows_at_once)
        outputs = NnetComputer(nnet, computation).forward({"input": x})

    expected = NnetComputer(nnet, computation).forward({"input": x})

    np.testing.assert_allclose(outputs["output"], expected["output"], rtol=0, atol=1e-6)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("begin", [0, 2])
def test_training_is_the_same(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, input derivatives and gradient are those of steps that put nothing off."""
    nnet = network(begin)

    found = training_results(nnet)
    monkeypatch.undo()

    for ours, expected in zip(found, training_results(nnet), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("_small")
def test_looped_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within each chunk columns are put off, and the next chunk goes on from the state."""
    nnet = network()
    computation = loop(nnet, 8)
    assert [steps.num_rows for steps in planned(nnet, computation)] == [8, 8]
    chunks = np.random.default_rng(1).standard_normal((6, 8, 5), dtype=np.float32)

    def outputs() -> np.ndarray:
        computer = NnetComputer(nnet, computation)
        rounds = []
        for _ in range(2):
            rounds += [computer.forward({"input": chunk})["output"] for chunk in chunks]
            computer.reset()
        return np.array(rounds)

    found = outputs()
    monkeypatch.undo()

    np.testing.assert_allclose(found, outputs(), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("_small")
def test_outputs_that_the_recurrence_waits_for() -> None:
    """Nothing is put off if all columns go back into the recurrence."""
    nnet = network(width=6)

    assert planned(nnet, program(nnet)) == []


def test_few_parameters_are_left_alone() -> None:
    """To read a few parameters takes no longer than to keep the input."""
    nnet = network()

    assert planned(nnet, program(nnet)) == []


@pytest.mark.usefixtures("_small")
def test_other_components_are_left_alone() -> None:
    """Only affine maps can be computed for some columns of their output at a time."""
    assert plan_deferred_outputs(program(network()), lambda _: False) == {}
