"""Running the compiled computation gives Kaldi's numbers, optimized or not."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet, vectorize
from nnet3_optimizer import check_computation, optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import recorder
from reference_cases import (
    ReferenceCase,
    assert_close,
    computation_request,
    network,
    parametrize_cases,
)

Compile = Callable[[Nnet, ComputationRequest], NnetComputation]


def compile_optimized(nnet: Nnet, request: ComputationRequest) -> NnetComputation:
    """The optimized program, with the default passes, checked."""
    computation = optimize(nnet, compile_computation(nnet, request))
    check_computation(nnet, computation)
    return computation


parametrize_programs = pytest.mark.parametrize(
    "compile_program",
    [
        pytest.param(compile_computation, id="compiled"),
        pytest.param(compile_optimized, id="optimized"),
    ],
)


@parametrize_programs
@parametrize_cases()
def test_outputs(case: ReferenceCase, compile_program: Compile) -> None:
    """Outputs agree within 1e-5."""
    nnet = network(case)
    computer = NnetComputer(nnet, compile_program(nnet, computation_request(case)))

    outputs = computer.forward(case.node_arrays("input"))

    assert_close(outputs, case.node_arrays("output"), 1e-5)


@parametrize_programs
@parametrize_cases(only=lambda case: any(io.has_deriv for io in case.request.outputs))
def test_derivatives(case: ReferenceCase, compile_program: Compile) -> None:
    """Derivatives of inputs and parameters agree within 1e-4."""
    nnet = network(case)
    computer = NnetComputer(nnet, compile_program(nnet, computation_request(case)))
    computer.forward(case.node_arrays("input"))

    derivatives = computer.backward(case.node_arrays("output_deriv"))

    assert_close(derivatives, case.node_arrays("input_deriv"), 1e-4)
    if "gradient" in case.arrays:
        gradient = {"gradient": vectorize(computer.gradient)}
        assert_close(gradient, {"gradient": case.arrays["gradient"]}, 1e-4)


@parametrize_cases()
def test_threads_that_share_all_work(case: ReferenceCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads that share even the smallest operations compute the same."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)
    nnet = network(case)
    computation = compile_optimized(nnet, computation_request(case))
    computer = NnetComputer(nnet, computation, threads=3)

    assert_close(computer.forward(case.node_arrays("input")), case.node_arrays("output"), 1e-5)
    if any(io.has_deriv for io in case.request.outputs):
        derivatives = computer.backward(case.node_arrays("output_deriv"))
        assert_close(derivatives, case.node_arrays("input_deriv"), 1e-4)


@pytest.mark.parametrize("threads", [1, 3])
@parametrize_cases(only=lambda case: "params_after4" in case.arrays)
def test_training_steps(case: ReferenceCase, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps along the natural gradient end at Kaldi's parameters, within 1e-3.

    This holds for optimized programs only: they update a component that is used at many times once
    for all of them, and the natural gradient depends on how rows are grouped.
    """
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)
    nnet = network(case)
    trained = DeviceNnet(nnet, trainable=True, natural_gradient=True, threads=threads)
    computer = NnetComputer(trained, compile_optimized(nnet, computation_request(case)))
    before = trained.parameters.copy()
    for step in range(4):
        computer.forward(scaled(case.node_arrays("input"), 1 + 0.1 * step))
        computer.backward(scaled(case.node_arrays("output_deriv"), 1 - 0.05 * step))
        trained.take_step()

    changes = {"changes": trained.parameters - before}
    assert_close(
        {"parameters": trained.parameters}, {"parameters": case.arrays["params_after4"]}, 1e-3
    )
    assert_close(changes, {"changes": case.arrays["params_after4"] - before}, 1e-3)


def scaled(arrays: Mapping[str, np.ndarray], factor: float) -> dict[str, np.ndarray]:
    """All arrays times a factor."""
    return {name: array * np.float32(factor) for name, array in arrays.items()}
