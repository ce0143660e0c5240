"""The settings of the natural-gradient update, which many types have in different order.

A class declares its settings at the place where its files have them: `rank_in: int = rank_in()`.
"""

from typing import Any

from nnet3_descriptors.components.declaration.fields import boolean, integer, real

_LARGEST_RANK_IN = 20
_LARGEST_RANK_OUT = 80

_LONGEST_HISTORY = 1e6
"""The largest value, as in Kaldi: an estimate that forgets nothing learns nothing."""


def rank_in(**changes: Any) -> Any:
    """Declares the rank of the Fisher-matrix estimate for the input side."""
    declaration: dict[str, Any] = {"default": _default_rank_in, "unset_below": 0, "minimum": 1}
    return integer(**declaration | changes)


def rank_out(**changes: Any) -> Any:
    """Declares the rank of the Fisher-matrix estimate for the output side."""
    declaration: dict[str, Any] = {"default": _default_rank_out, "unset_below": 0, "minimum": 1}
    return integer(**declaration | changes)


def _default_rank_in(component: Any) -> int:
    return int(min(_LARGEST_RANK_IN, (component.linear_params.shape[1] + 1) // 2))


def _default_rank_out(component: Any) -> int:
    return int(min(_LARGEST_RANK_OUT, (component.linear_params.shape[0] + 1) // 2))


def update_period(**changes: Any) -> Any:
    """Declares the number of minibatches between updates of the estimate."""
    declaration: dict[str, Any] = {"default": 4, "minimum": 1}
    return integer(**declaration | changes)


def num_samples_history(**changes: Any) -> Any:
    """Declares the number of frames over which the estimate forgets."""
    declaration: dict[str, Any] = {"default": 2000.0, "above": 0.0, "maximum": _LONGEST_HISTORY}
    return real(**declaration | changes)


def num_minibatches_history(**changes: Any) -> Any:
    """Declares the number of minibatches over which the estimate forgets.

    The newest minibatch has a weight of one over this number. The number must be above 1, or the
    estimate would keep nothing of earlier minibatches.
    """
    declaration: dict[str, Any] = {"default": 4.0, "above": 1.0, "maximum": _LONGEST_HISTORY}
    return real(**declaration | changes)


def alpha(**changes: Any) -> Any:
    """Declares the weight of the unit matrix that smooths the estimate."""
    declaration: dict[str, Any] = {"default": 4.0, "minimum": 0.0}
    return real(**declaration | changes)


def use_natural_gradient(**changes: Any) -> Any:
    """Declares whether the update uses the natural gradient."""
    declaration: dict[str, Any] = {"default": True}
    return boolean(**declaration | changes)


def orthonormal_constraint(**changes: Any) -> Any:
    """Declares the scale of the semi-orthonormal matrix to which training holds the parameters.

    0 for none, negative for a scale that floats.
    """
    declaration: dict[str, Any] = {"default": 0.0, "written": "unless default"}
    return real(**declaration | changes)
