"""Small random denominators and supervisions for the tests of chain training."""

from __future__ import annotations

import itertools

import numpy as np
from nnet3_training import ChainSupervision, Fst


def denominator(rng: np.random.Generator, *, states: int = 12, pdfs: int = 5) -> Fst:
    """An HMM whose probabilities sum to one, with a loop in each state."""
    arcs = 3 * states
    sources = np.concatenate([np.arange(states), rng.integers(states, size=arcs - states)])
    ahead = rng.integers(states, size=arcs - 2 * states)
    destinations = np.concatenate([np.arange(states), (np.arange(states) + 1) % states, ahead])
    probs = rng.random(arcs) + 0.1
    sums = np.bincount(sources, probs, minlength=states)
    return Fst.from_arcs(
        start=0,
        final_costs=np.zeros(states),
        sources=sources,
        labels=rng.integers(1, pdfs + 1, size=arcs),
        costs=-np.log(probs / sums[sources]),
        destinations=destinations,
    )


def paths(rng: np.random.Generator, *, frames: int, pdfs: int, width: int = 2) -> Fst:
    """An acceptor of `frames` labels with `width` states between two frames."""
    layers = [np.array([0])]
    for _ in range(frames - 1):
        layers.append(layers[-1][-1] + 1 + np.arange(width))
    layers.append(np.array([layers[-1][-1] + 1]))
    pairs = np.array([(a, b) for one, two in itertools.pairwise(layers) for a in one for b in two])
    finals = np.full(layers[-1][0] + 1, np.inf)
    finals[-1] = 0.25
    return Fst.from_arcs(
        start=0,
        final_costs=finals,
        sources=pairs[:, 0],
        labels=rng.integers(1, pdfs + 1, size=len(pairs)),
        costs=rng.random(len(pairs)),
        destinations=pairs[:, 1],
    )


def supervision(
    rng: np.random.Generator, *, frames: int = 4, sequences: int = 3, pdfs: int = 5
) -> ChainSupervision:
    """Random paths for each of some sequences, merged."""
    parts = [
        ChainSupervision(
            weight=0.5,
            frames_per_sequence=frames,
            label_dim=pdfs,
            fst=paths(rng, frames=frames, pdfs=pdfs),
        )
        for _ in range(sequences)
    ]
    return ChainSupervision.merged(parts)


def end_to_end(
    rng: np.random.Generator, *, frames: int = 4, sequences: int = 3, pdfs: int = 5
) -> ChainSupervision:
    """Sequences with loops in their FSTs."""
    fsts = [denominator(rng, states=3, pdfs=pdfs) for _ in range(sequences)]
    return ChainSupervision(
        weight=0.5,
        num_sequences=sequences,
        frames_per_sequence=frames,
        label_dim=pdfs,
        e2e_fsts=fsts,
    )
