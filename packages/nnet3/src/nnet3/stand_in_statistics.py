"""Statistics for batch normalisation that has never seen data.

In test mode such a component needs a mean and a variance. Kaldi's tools draw them from the C
library's generator, which they never seed, so everyone gets the same numbers. Networks that were
initialized but not trained (0.raw) give Kaldi's values only with these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Component, Nnet
from nnet3_descriptors.components import BatchNormComponent

_RAND_MAX = 2**31 - 1
_LAG, _DISTANCE, _DISCARDED = 31, 3, 310
_SEED_OFFSET = 27437


def with_stand_in_statistics(nnet: Nnet) -> tuple[Nnet, tuple[str, ...]]:
    """Gives statistics to the batch-norm components that have none.

    With vectors m and s of standard normal numbers, a component gets mean m and mean square s +
    m^2, so variance s; test mode replaces negative variances by 0.

    Args:
        nnet: The network.

    Returns:
        The network, and the names of the components that had no statistics.
    """
    draws = _rand()
    changed: dict[str, Component] = {}
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if isinstance(component, BatchNormComponent) and component.count == 0.0:
            mean, variance = (
                _standard_normal(component.block_dim, next(draws) + _SEED_OFFSET) for _ in range(2)
            )
            changed[name] = component.replace(count=1.0, stats_mean=mean, stats_var=variance)
    return (nnet.with_components(changed) if changed else nnet), tuple(changed)


def _standard_normal(dim: int, seed: int) -> npt.NDArray[np.float32]:
    """(dim,) standard normal numbers by the method of Box and Muller, in single precision."""
    pairs = -(-dim // 2)
    draws = _rand_r(seed)
    uniform = [(next(draws) + 1.0) / (_RAND_MAX + 2.0) for _ in range(2 * pairs)]
    u = np.array(uniform, dtype=np.float32).reshape(pairs, 2)
    radius = np.sqrt(np.float32(-2.0) * np.log(u[:, 0]))
    angle = (2.0 * np.pi * u[:, 1].astype(np.float64)).astype(np.float32)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:dim]


def _rand() -> Iterator[int]:
    """The numbers of glibc's rand() in a program that does not seed it.

    An additive feedback generator, x[i] = x[i - 31] + x[i - 3] modulo 2^32, started by a linear
    congruential one with seed 1; the lowest bit is dropped.
    """
    state = [1]
    while len(state) < _LAG:
        state.append(16807 * state[-1] % _RAND_MAX)
    state += state[:_DISTANCE]
    for _ in range(_DISCARDED):
        state.append((state[-_LAG] + state[-_DISTANCE]) % 2**32)
    while True:
        state.append((state[-_LAG] + state[-_DISTANCE]) % 2**32)
        yield state[-1] >> 1
        del state[0]


def _rand_r(seed: int) -> Iterator[int]:
    """The numbers of glibc's rand_r(): 11, 10 and 10 bits of a linear congruential generator."""
    state = seed % 2**32
    while True:
        value = 0
        for bits in (11, 10, 10):
            state = (state * 1103515245 + 12345) % 2**32
            value = value << bits ^ (state >> 16) % 2**bits
        yield value
