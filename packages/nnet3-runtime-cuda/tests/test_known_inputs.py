"""Tests of products that are computed before a recurrence."""

import numpy as np
import pytest
from nnet3 import CachingCompiler
from nnet3_compiler import compile_looped, looped_requests
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_computation.commands import DeallocMatrix, NoOperationLabel
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.lowering import recurrences
from nnet3_runtime_cuda.lowering.plan import Shared, plan_with
from nnet3_runtime_cuda.lowering.recurrences import StepProduct
from stated_capabilities import Stated

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
    """A recurrent layer on an affine one."""
    return parse_config(CONFIG.replace("DELAY", str(delay)), rng=np.random.default_rng(0))


def program(nnet: Nnet, *, derivatives: bool) -> NnetComputation:
    """The network's computation over FRAMES frames of SEQUENCES sequences."""
    io = [
        IoSpecification.from_range(name, 0, FRAMES, SEQUENCES, has_deriv=derivatives)
        for name in ("input", "output")
    ]
    request = ComputationRequest(
        inputs=(io[0],), outputs=(io[1],), need_model_derivative=derivatives
    )
    return CachingCompiler(nnet).compile(request)


def distinct(shared: Shared) -> list[StepProduct]:
    """The products that steps share, each once."""
    return list(dict.fromkeys(product for product, _ in shared.values()))


@pytest.mark.parametrize("delay", [-1, 1, -3])
@pytest.mark.parametrize("derivatives", [False, True])
def test_steps_of_a_recurrence(delay: int, derivatives: bool) -> None:
    """All steps use large products for their known part, even after the input is freed."""
    nnet = network(delay)
    gates = nnet.component_index("gates")

    computation = program(nnet, derivatives=derivatives)

    products = distinct(plan_with(nnet, computation, Stated(split=[gates])).early)

    assert sum(product.place.area.rows for product in products) == FRAMES * SEQUENCES
    assert {step.columns for product in products for step in product.steps} == {6}
    commands = list(computation.commands)
    freed = {
        computation.submatrices[command.matrix, 0]: at
        for at, command in enumerate(commands)
        if isinstance(command, DeallocMatrix)
    }
    after = [
        step.position > freed[product.place.matrix]
        for product in products
        for step in product.steps
    ]
    assert any(after)
    assert not any(product.steps[0].position > freed[product.place.matrix] for product in products)


@pytest.mark.parametrize("delay", [-1, 1, -3])
@pytest.mark.parametrize("rows_at_once", [4, 6, 10, 128])
def test_values_are_the_same(
    delay: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs equal those computed step by step, for any number of rows at once."""
    nnet = network(delay)
    computation = program(nnet, derivatives=False)
    x = np.random.default_rng(1).standard_normal((FRAMES * SEQUENCES, 5)).astype(np.float32)
    monkeypatch.setattr(recurrences, "CHANGING_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(recurrences, "ROWS_AT_ONCE", rows_at_once)
    outputs = NnetComputer(nnet, computation).forward({"input": x})
    monkeypatch.setattr(recurrences, "FEWEST_EARLY", 10**6)

    expected = NnetComputer(nnet, computation).forward({"input": x})

    np.testing.assert_allclose(outputs["output"], expected["output"], rtol=0, atol=1e-6)


SPLICED = """
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=10 output-dim=4
component-node name=affine component=affine \
    input=Append(Offset(input, -1), input, IfDefined(Offset(tanh, -1)))
component name=tanh type=TanhComponent dim=4
component-node name=tanh component=tanh input=affine
component name=last type=AffineComponent input-dim=4 output-dim=2
component-node name=last component=last input=tanh
output-node name=output input=last
"""


def looped_program(nnet: Nnet, chunk: int) -> NnetComputation:
    """The network's computation in chunks, optimized."""
    requests = looped_requests(nnet, chunk)
    return compile_looped(nnet, requests, optimize=lambda compiled: optimize(nnet, compiled))


@pytest.mark.parametrize("chunk", [3, 6])
def test_rounds_of_a_loop(chunk: int) -> None:
    """Each round of an optimized looped computation gives the outputs of all frames at once."""
    nnet = parse_config(SPLICED, rng=np.random.default_rng(0))
    frames = 6 * chunk
    x = np.random.default_rng(1).standard_normal((frames + 1, 3)).astype(np.float32)
    whole = ComputationRequest(
        inputs=[IoSpecification.from_range("input", -1, frames)],
        outputs=[IoSpecification.from_range("output", 0, frames)],
    )
    computer = NnetComputer(nnet, looped_program(nnet, chunk))

    chunks = np.split(x, range(chunk + 1, len(x), chunk))  # the first also has the context
    found = [computer.forward({"input": rows})["output"] for rows in chunks]

    expected = NnetComputer(nnet, CachingCompiler(nnet).compile(whole)).forward({"input": x})
    np.testing.assert_allclose(np.concatenate(found), expected["output"], rtol=0, atol=1e-6)


def test_no_step_reaches_into_a_loop() -> None:
    """Steps before a loop and within it share no product."""
    nnet = parse_config(SPLICED, rng=np.random.default_rng(0))
    looped = looped_program(nnet, 6)
    label = next(at for at, one in enumerate(looped.commands) if isinstance(one, NoOperationLabel))

    found = plan_with(nnet, looped, Stated(split=[nnet.component_index("affine")])).early

    sides = [{step.position > label for step in product.steps} for product in distinct(found)]
    assert {True} in sides
    assert {False} in sides
    assert {True, False} not in sides


def test_other_components_are_left_alone() -> None:
    """Only affine maps can be computed for a part of their input's columns at a time."""
    nnet = network(-1)

    assert plan_with(nnet, program(nnet, derivatives=False), Stated()).early == {}
