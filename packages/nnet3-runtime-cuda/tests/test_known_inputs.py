"""Tests of products that are computed before a recurrence."""

import numpy as np
import pytest
from nnet3_compiler import NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.lowering import known_inputs, step_products
from nnet3_runtime_cuda.lowering.known_inputs import plan_known_inputs

FRAMES, SEQUENCES = 40, 2

CONFIG = """
input-node name=input dim=5
component name=below type=NaturalGradientAffineComponent input-dim=5 output-dim=6
component-node name=below component=below input=input
component name=gates type=NaturalGradientAffineComponent input-dim=10 output-dim=4
component-node name=gates component=gates input=Append(below, IfDefined(Offset(squashed, DELAY)))
component name=squashed type=TanhComponent dim=4
component-node name=squashed component=squashed input=gates
output-node name=output input=squashed
"""


def network(delay: int) -> Nnet:
    """A recurrent layer above an affine one."""
    return parse_config(CONFIG.replace("DELAY", str(delay)), rng=np.random.default_rng(0))


def program(nnet: Nnet, *, derivatives: bool) -> NnetComputation:
    """Its computation over FRAMES frames of SEQUENCES sequences."""
    io = [
        IoSpecification.from_range(name, 0, FRAMES, SEQUENCES, has_deriv=derivatives)
        for name in ("input", "output")
    ]
    request = ComputationRequest(
        inputs=(io[0],), outputs=(io[1],), need_model_derivative=derivatives
    )
    return CachingCompiler(nnet).compile(request)


@pytest.mark.parametrize("delay", [-1, 1, -3])
@pytest.mark.parametrize("derivatives", [False, True])
def test_steps_of_a_recurrence(delay: int, derivatives: bool) -> None:
    """All steps take their known part from large products, also that after the input is freed."""
    nnet = network(delay)
    gates = nnet.component_index("gates")

    plan = plan_known_inputs(program(nnet, derivatives=derivatives), lambda c: c == gates)

    steps = {id(chunk): chunk for chunk in plan.values()}.values()
    rows = sum(chunk.area.row_end - chunk.area.row for chunk in steps)
    assert rows == FRAMES * SEQUENCES
    assert any(step.is_freed for chunk in steps for step in chunk.steps)
    assert not any(chunk.steps[0].is_freed for chunk in steps)
    assert all(chunk.area.column_end - chunk.area.column == 6 for chunk in steps)
    assert all(position in [s.position for s in plan[position].steps] for position in plan)


@pytest.mark.parametrize("delay", [-1, 1, -3])
@pytest.mark.parametrize("rows_at_once", [4, 6, 10, 128])
def test_values_are_the_same(
    delay: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs are those of the computation done step by step, however many rows at once."""
    nnet = network(delay)
    computation = program(nnet, derivatives=False)
    x = np.random.default_rng(1).standard_normal((FRAMES * SEQUENCES, 5)).astype(np.float32)
    monkeypatch.setattr(step_products, "CHANGING_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(step_products, "ROWS_AT_ONCE", rows_at_once)
    outputs = NnetComputer(nnet, computation).forward({"input": x})
    monkeypatch.setattr(known_inputs, "FEWEST_STEPS", 10**6)

    expected = NnetComputer(nnet, computation).forward({"input": x})

    np.testing.assert_allclose(outputs["output"], expected["output"], rtol=0, atol=1e-6)


def test_other_components_are_left_alone() -> None:
    """Only affine maps can be computed for some columns of their input at a time."""
    assert plan_known_inputs(program(network(-1), derivatives=False), lambda _: False) == {}
