"""Both runtimes give Kaldi's numbers, and statistics that are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nnet3_descriptors import Nnet, read_nnet
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import recorder
from nnet3_runtime_reference import Draws, ReferenceComputer
from nnet3_training import TrainingExample
from reference_cases import (
    DIGITS_REFERENCE,
    ReferenceCase,
    network,
    parametrize_cases,
)
from reference_programs import (
    Compile,
    check_training_steps,
    check_values,
    has_derivatives,
    optimized,
    parametrize_programs,
    scaled,
)
from test_reference_training import (
    assert_same_averages,
    assert_same_counts,
    components,
    decisions,
    expected,
    train,
)


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


class ScriptedDraws(Draws):
    """Makes Kaldi's decisions in its training of the digits."""

    def __init__(self) -> None:
        super().__init__()
        self.script = decisions()

    def chance(self, component: str, probability: float) -> bool:
        """Returns the next decision."""
        expected_probability, outcome = next(self.script)
        assert probability == expected_probability
        return outcome


class Follower:
    """Runs Kaldi's minibatches on the reference runtime, with parameters trained elsewhere.

    Attributes:
        nnet: The network, with the statistics of the reference runtime.
    """

    def __init__(self, nnet: Nnet) -> None:
        self.nnet = nnet
        self.draws = ScriptedDraws()

    def __call__(self, trained: Nnet, example: TrainingExample) -> None:
        """Runs a minibatch forward and backward, and scales batch-norm statistics by 0.8."""
        parameters = {
            name: component.with_parameters(trained.component(name).parameter_arrays())
            for name, component in components(self.nnet)
        }
        nnet = self.nnet.with_components(parameters)
        computation = optimized(nnet, example.request())
        computer = ReferenceComputer(nnet, computation, draws=self.draws)
        outputs = computer.forward({io.name: io.values for io in example.inputs})
        [supervision] = [io.supervision for io in example.outputs]
        derivative = np.zeros_like(outputs["output"])
        np.add.at(derivative, (supervision.rows, supervision.classes), supervision.weights)
        computer.backward({"output": derivative})
        self.nnet = computer.nnet.with_components(
            {
                name: component.replace(count=0.8 * component.count)
                for name, component in components(computer.nnet)
                if component.type == "BatchNormComponent"
            }
        )


def test_statistics_of_training() -> None:
    """Statistics after six minibatches of the digits are those in Kaldi's model."""
    follower = Follower(read_nnet(DIGITS_REFERENCE / "initial.raw"))

    train(0.9, follower)

    assert next(follower.draws.script, None) is None
    assert_same_counts(follower.nnet, expected(0.9))
    assert_same_averages(follower.nnet, expected(0.9))
