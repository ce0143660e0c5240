"""Both runtimes give Kaldi's numbers, and statistics that are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import recorder
from nnet3_runtime_reference import Draws, ReferenceComputer
from reference_cases import ReferenceCase, network, parametrize_cases
from reference_programs import (
    Compile,
    check_training_steps,
    check_values,
    has_derivatives,
    parametrize_programs,
    scaled,
)
from test_reference_training import components


@pytest.mark.parametrize(
    ("computer_type", "dtype"), [(ReferenceComputer, np.float64), (NnetComputer, np.float32)]
)
@parametrize_programs
@parametrize_cases()
def test_values(
    case: ReferenceCase, compile_program: Compile, computer_type: Any, dtype: type
) -> None:
    """Outputs agree with Kaldi's within 1e-5, derivatives of inputs and parameters within 1e-4."""
    nnet = network(case)

    check_values(computer_type(nnet, compile_program(nnet, case.request)), case, dtype)


@pytest.mark.parametrize("threads", [1, 3])
@parametrize_cases(only=lambda case: "params_after4" in case.arrays)
def test_training_steps(case: ReferenceCase, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four steps along the natural gradient end at Kaldi's parameters, within 1e-3.

    This holds for optimized programs only: they update a component that is used at many times once
    for all of them, and the natural gradient depends on how rows are grouped.
    """
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)

    check_training_steps(case, threads=threads)


def statistics(nnet: Nnet) -> dict[str, Any]:
    """All numeric fields of components that are not parameters."""
    return {
        f"{name}.{spec.name}": getattr(component, spec.name)
        for name, component in components(nnet)
        for spec in component.FIELDS
        if spec.name not in component.parameters
        and isinstance(getattr(component, spec.name), np.ndarray | float | int)
    }


@parametrize_programs
@parametrize_cases(only=lambda case: case.request.store_component_stats)
def test_statistics(case: ReferenceCase, compile_program: Compile) -> None:
    """Statistics after three runs are those of the fast runtime with the same masks."""
    nnet = network(case)
    computation = compile_program(nnet, case.request)
    fast = NnetComputer(DeviceNnet(nnet, seed=1, threads=1), computation)
    computers = [ReferenceComputer(nnet, computation, draws=Draws(1)), fast]
    for computer in computers:
        for factor in (1.0, 0.7, -0.4):
            computer.forward(scaled(case.node_arrays("input"), factor))
            if has_derivatives(case):
                computer.backward(scaled(case.node_arrays("output_deriv"), factor))

    found, wanted = (statistics(computer.nnet) for computer in computers)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = max(np.abs(value).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * scale, err_msg=name)
