"""The output of tools that evaluate networks on examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training import Evaluator

Say = Callable[[str], None]


def say_evaluation(evaluator: Evaluator, nnet: Nnet, say: Say, *, per_column: bool = False) -> None:
    """Prints the objective and the accuracy at each output, in the form that Kaldi's scripts read.

    Args:
        evaluator: The evaluation.
        nnet: The network.
        say: Prints a line.
        per_column: Whether to print the accuracy of each column, too; -1 for those without weight.
    """
    kinds = {node.name: node.objective for node in nnet.output_nodes}
    for name, total in evaluator.objectives.items():
        what = "log-likelihood" if kinds.get(name) == "linear" else "objective"
        say(
            f"Overall {what} for '{name}' is {total.per_frame:.6g} per frame, over "
            f"{total.weight:.6g} frames."
        )
    for name, found in evaluator.accuracies.items():
        weight = f"{found.weight.sum():.6g} frames."
        say(f"Overall accuracy for '{name}' is {found.per_frame:.6g} per frame, over {weight}")
        if per_column:
            known = found.weight != 0.0
            shares = np.full(len(known), -1.0)
            shares[known] = found.right[known] / found.weight[known]
            values = "".join(f"{share:.6g} " for share in shares)
            say(f"Overall per-dim accuracy vector for '{name}' is  [ {values}]")


def by_component(nnet: Nnet, values: Iterable[float]) -> str:
    """One number for each component with parameters, as text: the component's name, the number."""
    names = [name for name, c in zip(nnet.component_names, nnet.components, strict=True)
             if c.parameter_arrays()]  # fmt: skip
    pairs = "".join(f"{name}:{value:.6g} " for name, value in zip(names, values, strict=True))
    return f"[ {pairs}]"


def dot_products(
    nnet: Nnet, one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The dot product of two vectors of parameters, for each component with parameters.

    Args:
        nnet: The network.
        one: (num_parameters,), in the order of `vectorize`.
        other: The same.
    """
    sizes = [sum(a.size for a in c.parameter_arrays().values()) for c in nnet.components]
    starts = np.cumsum([0, *(size for size in sizes if size)])
    ranges = itertools.pairwise(starts.tolist())
    return np.array([np.vdot(one[a:b], other[a:b]) for a, b in ranges])
