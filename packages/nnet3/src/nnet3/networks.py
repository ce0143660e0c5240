"""The network that a model runs: in test mode, with the output that is wanted.

In test mode, batch normalisation that has never seen data needs a mean and a variance. Kaldi's
tools draw them from the C library's generator, which they never seed, so everyone gets the same
numbers. Networks that were initialized but not trained (0.raw) give Kaldi's values only with these
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import (
    Component,
    ComponentInputNode,
    Nnet,
    OutputNode,
    parse_descriptor,
)
from nnet3_descriptors.components import BatchNormComponent
from nnet3_descriptors.editing import remove_orphans
from nnet3_descriptors.similar_names import hint
from nnet3_runtime_cuda import RunError

OUTPUT = "output"
"""The name of a network's output in Kaldi's tools."""

_RAND_MAX = 2**31 - 1
_LAG, _DISTANCE, _DISCARDED = 31, 3, 310
_SEED_OFFSET = 27437


def check_name(output: object) -> str:
    """The name of an output.

    Raises:
        RunError: it is no text.
    """
    if not isinstance(output, str):
        raise RunError(f"output: expected the name of a node, found {type(output).__name__}")
    return output


def with_output(nnet: Nnet, name: str) -> Nnet:
    """The network whose only output, named 'output', is the value of a node.

    Args:
        nnet: The network.
        name: An output node, or another node, such as a layer.

    Raises:
        RunError: there is no such node.
    """
    nodes = {node.name: node for node in nnet.nodes if not isinstance(node, ComponentInputNode)}
    if name not in nodes:
        raise RunError(f"the network has no node '{name}'{hint(name, nodes)}")
    node = nodes[name]
    descriptor = node.descriptor if isinstance(node, OutputNode) else parse_descriptor(name)
    chosen = OutputNode(name=OUTPUT, descriptor=descriptor)
    others = [each for each in nnet.nodes if not isinstance(each, OutputNode)]
    return remove_orphans(attrs.evolve(nnet, nodes=(*others, chosen)))


def only_output(nnet: Nnet) -> Nnet:
    """The network without the outputs, and what only they need, that are not named 'output'."""
    if len(nnet.output_nodes) == 1:
        return nnet
    return with_output(nnet, OUTPUT)


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
