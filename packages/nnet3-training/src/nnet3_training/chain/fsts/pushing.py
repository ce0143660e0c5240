"""Pushing of weights so that the probabilities of every state have the same sum.

The probabilities of arcs are a matrix P over states; a final cost counts as an arc to the start.
Let v be the eigenvector of its largest eigenvalue. Then all rows of P'(i, j) = P(i, j) v(j) / v(i)
sum to that eigenvalue, and paths keep their costs (Hannemann et al., "Combining forward and
backward search in decoding", ICASSP 2013). The vector is found by the power method on P + 0.1 I,
since eigenvalues of P may differ in their phase only.
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from nnet3_training.chain.fsts.fst import Fst

_LOGGER = logging.getLogger(__name__)

Vector = npt.NDArray[np.float64]

_DIAGONAL = 0.1
_MAX_ITERATIONS = 200
_CHECKED = 5
"""Number of iterations between two checks of the sums."""


def _probabilities(costs: npt.NDArray[np.float32]) -> Vector:
    """The probabilities of costs, rounded to float32 as the costs are.

    Joining states rounds costs later, where the last bit can decide; so it must be Kaldi's.
    """
    return np.exp(-costs.astype(np.float64)).astype(np.float32).astype(np.float64)


def pushed(fst: Fst, delta: float) -> Fst:
    """The FST with its weights pushed.

    Args:
        fst: An FST; all its states are on paths to an end.
        delta: Largest difference between the logarithms of the sums. If 200 iterations do not reach
            it, a warning is logged.
    """
    if not fst.num_states:
        return fst
    sources, destinations = fst.sources, fst.destinations
    probs, ends = _probabilities(fst.costs), _probabilities(fst.final_costs)
    vector = np.full(fst.num_states, 1.0 / np.sqrt(fst.num_states))

    def product(vector: Vector) -> Vector:
        result: Vector = ends * vector[fst.start]
        result += np.bincount(sources, probs * vector[destinations], minlength=fst.num_states)
        return result

    for iteration in range(_MAX_ITERATIONS):
        following = _DIAGONAL * vector + product(vector)
        vector = following / np.linalg.norm(following)
        if iteration and iteration % _CHECKED == 0:
            sums = product(vector) / vector
            if np.log(sums.max() / sums.min()) <= delta:
                break
    else:
        _LOGGER.warning("The weights of an FST were pushed without reaching equal sums.")
    potentials = -np.log(vector)
    return Fst(
        start=fst.start,
        final_costs=fst.final_costs + (potentials[fst.start] - potentials).astype(np.float32),
        splits=fst.splits,
        labels=fst.labels,
        output_labels=fst.output_labels,
        costs=fst.costs + potentials[destinations] - potentials[sources],
        destinations=destinations,
    )
