"""All that a user can see of a run of a computation, by the definition of its commands."""

from collections.abc import Sequence

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation.request import IoFingerprint
from nnet3_descriptors import Nnet
from nnet3_runtime_reference import Draws, ReferenceComputer

Results = dict[tuple[str, str], np.ndarray]
"""Outputs, derivatives, gradients and statistics by kind and name."""


class Always(Draws):
    """Decides yes, in whatever order components ask."""

    def chance(self, component: str, probability: float) -> bool:
        """Returns True."""
        return True


def run(nnet: Nnet, computation: NnetComputation) -> Results:
    """The results of a computation of one segment on random inputs.

    Raises:
        ValueError: A command cannot be run.
    """
    [request] = computation.requests
    rng = np.random.default_rng(0)

    def drawn(ios: Sequence[IoFingerprint]) -> dict[str, np.ndarray]:
        return {io.name: rng.standard_normal((io.rows, nnet.node_dim(io.name))) for io in ios}

    computer = ReferenceComputer(nnet, computation, draws=Always())
    found = {
        ("output", name): rows for name, rows in computer.forward(drawn(request.inputs)).items()
    }
    if request.need_model_derivative or any(io.has_deriv for io in request.inputs):
        given = drawn([io for io in request.outputs if io.has_deriv])
        found |= {("derivative", name): rows for name, rows in computer.backward(given).items()}
    if request.need_model_derivative:
        gradient = computer.gradient.state_dict()
        found |= {("gradient", name): array for name, array in gradient.items()}
    for name, component in zip(nnet.component_names, computer.nnet.components, strict=True):
        for spec in component.FIELDS:
            value = getattr(component, spec.name)
            is_counted_by_call = spec.name.startswith(("num_dims", "oderiv", "self_repair"))
            if isinstance(value, float | np.ndarray) and not is_counted_by_call:
                found[name, spec.name] = np.asarray(value)
    return found


def results(nnet: Nnet, computation: NnetComputation) -> Results | None:
    """The results of a computation; None if it cannot be run."""
    try:
        return run(nnet, computation)
    except Exception:  # the definition expects a sound computation: damage may end in any error
        return None


def agree(one: Results, other: Results) -> bool:
    """Whether results are the same, to their precision."""

    def equal(value: np.ndarray, other: np.ndarray) -> bool:
        tolerance = 1e-9 if value.dtype == np.float64 else 1e-5
        return value.shape == other.shape and np.allclose(value, other, tolerance, tolerance)

    return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)


def same_results(nnet: Nnet, one: NnetComputation, other: NnetComputation) -> bool:
    """Whether two computations give the same results."""
    return agree(run(nnet, one), run(nnet, other))
