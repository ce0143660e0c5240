"""Programs of the reference cases, and what is checked of whatever runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet, vectorize
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from reference_cases import ReferenceCase, assert_close, network

Compile = Callable[[Nnet, ComputationRequest], NnetComputation]

OUTPUTS, DERIVATIVES = 1e-5, 1e-4
"""Tolerances on the processor, relative to the largest value of an array."""


def optimized(nnet: Nnet, request: ComputationRequest) -> NnetComputation:
    """The optimized program, with the default passes, which users run."""
    return optimize(nnet, compile_computation(nnet, request))


parametrize_programs = pytest.mark.parametrize(
    "compile_program",
    [pytest.param(compile_computation, id="compiled"), pytest.param(optimized, id="optimized")],
)


def has_derivatives(case: ReferenceCase) -> bool:
    """Whether derivatives of outputs are given."""
    return any(io.has_deriv for io in case.request.outputs)


def check_derivatives(
    computer: Any, case: ReferenceCase, tolerance: float, dtype: type = np.float32
) -> None:
    """After a forward pass, derivatives of inputs and parameters are Kaldi's."""
    derivatives = computer.backward(case.node_arrays("output_deriv"))
    assert_close(derivatives, case.node_arrays("input_deriv"), tolerance, dtype)
    if "gradient" in case.arrays:
        gradient = {"gradient": vectorize(computer.gradient)}
        assert_close(gradient, {"gradient": case.arrays["gradient"]}, tolerance)


def check_values(computer: Any, case: ReferenceCase, dtype: type = np.float32) -> None:
    """Outputs are Kaldi's, of this type, and so are derivatives where the case has some."""
    outputs = computer.forward(case.node_arrays("input"))
    assert_close(outputs, case.node_arrays("output"), OUTPUTS, dtype)
    if has_derivatives(case):
        check_derivatives(computer, case, DERIVATIVES, dtype)


def scaled(arrays: Mapping[str, np.ndarray], factor: float) -> dict[str, np.ndarray]:
    """All arrays times a factor."""
    return {name: array * np.float32(factor) for name, array in arrays.items()}


def parameters_after_steps(case: ReferenceCase, **options: Any) -> np.ndarray:
    """All parameters after four steps along the natural gradient, as a vector.

    Args:
        case: The case; its inputs and derivatives are scaled by another number in each step.
        options: Those of `DeviceNnet`: the device, the number of threads.
    """
    nnet = network(case)
    trained = DeviceNnet(nnet, trainable=True, natural_gradient=True, **options)
    computer = NnetComputer(trained, optimized(nnet, case.request))
    for step in range(4):
        computer.forward(scaled(case.node_arrays("input"), 1 + 0.1 * step))
        computer.backward(scaled(case.node_arrays("output_deriv"), 1 - 0.05 * step))
        trained.take_step()
    return vectorize(trained.current())


def check_training_steps(case: ReferenceCase, **options: Any) -> None:
    """The parameters after four steps, and their change, are within 1e-3 of Kaldi's."""
    before, expected = vectorize(network(case)), case.arrays["params_after4"]
    after = parameters_after_steps(case, **options)
    assert_close({"parameters": after}, {"parameters": expected}, 1e-3)
    assert_close({"changes": after - before}, {"changes": expected - before}, 1e-3)
