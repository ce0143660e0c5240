"""Random networks with requests that they can compute.

One generator serves the tests of all packages. It draws from a `random.Random`: a test makes one
from a seed, or takes one from Hypothesis (`strategies.randoms()`), which then shrinks failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs
import numpy as np
from network_generator import write_network
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentNode, Nnet, parse_config
from nnet3_graph import NotComputableError, UnboundedComputationError, build_computation_graph
from small_networks import has_circle


@attrs.frozen
class Example:
    """A network and a request that it can compute.

    Attributes:
        config: The network as config lines.
        kinds: The kinds of its layers, keys of LAYERS.
    """

    config: str
    kinds: tuple[str, ...]
    nnet: Nnet
    request: ComputationRequest


def draw_rows(
    rng: Random, order: str, sequences: int, times: range, xs: Sequence[int] = (0,)
) -> np.ndarray:
    """Rows (n, t, x) of some sequences; ragged sequences have different lengths."""
    rows = []
    for n in range(sequences):
        own = times[: rng.randint(1, len(times))] if order == "ragged" and n else times
        rows += [(n, t, x) for t in own for x in xs]
    if order == "any":
        rng.shuffle(rows)
    elif order == "time first":
        rows.sort(key=lambda row: (row[1], row[2], row[0]))
    return np.array(rows, np.int32)


def draw_request(rng: Random, nnet: Nnet, *, derivatives: bool | None = None) -> ComputationRequest:
    """Draws a request of one to three sequences.

    Args:
        rng: The source of all choices.
        nnet: The network.
        derivatives: Whether to ask for derivatives; None to draw that too.
    """
    sequences = rng.randint(1, 3)
    order = rng.choice(["regular"] * 4 + ["ragged", "ragged", "any", "time first", "two x"])
    xs = (0, 1) if order == "two x" else (0,)
    wanted = rng.randrange(4) > 0 if derivatives is None else derivatives
    length, step = rng.randint(1, 6), rng.choice([1, 1, 1, 2])
    given = {
        node.name: range(-rng.randint(4, 9), length + rng.randint(4, 7))
        for node in nnet.input_nodes
    }
    for node in nnet.nodes:
        if isinstance(node, ComponentNode) and rng.randrange(12) == 0:
            given[node.name] = range(-4, 0)
    of_inputs = rng.choice(["regular", "ragged"]) if order == "ragged" else order
    return ComputationRequest(
        inputs=[
            IoSpecification(
                name=name,
                indexes=draw_rows(rng, of_inputs, sequences, times, xs),
                has_deriv=wanted and rng.randrange(2) == 0,
            )
            for name, times in given.items()
        ],
        outputs=[
            IoSpecification(
                name=node.name,
                indexes=draw_rows(rng, order, sequences, range(0, length, step), xs),
                has_deriv=wanted and (number == 0 or rng.randrange(2) == 0),
            )
            for number, node in enumerate(nnet.output_nodes)
        ],
        need_model_derivative=wanted and rng.randrange(3) > 0,
        store_component_stats=rng.randrange(2) == 0,
    )


def draw_example(rng: Random) -> Example | None:
    """Draws a network and a request; returns None if the request cannot be computed."""
    writer, kinds = write_network(rng)
    nnet = parse_config(writer.text(), rng=np.random.default_rng(rng.getrandbits(32)))
    request = draw_request(rng, nnet)
    if not is_computable(nnet, request):
        return None
    return Example(writer.text(), kinds, nnet, request)


def example_of_seed(seed: int) -> Example:
    """Draws examples with a seed until one can be computed."""
    rng = Random(seed)
    while True:
        example = draw_example(rng)
        if example is not None:
            return example


def is_computable(nnet: Nnet, request: ComputationRequest) -> bool:
    """Whether a request can be computed."""
    try:
        return not has_circle(build_computation_graph(nnet, request))
    except (NotComputableError, UnboundedComputationError):
        return False


def random_arrays(
    nnet: Nnet,
    specifications: Sequence[IoSpecification],
    seed: int | np.random.Generator = 0,
) -> dict[str, np.ndarray]:
    """Random values for inputs, or derivatives for outputs: (rows, dim) float32 by node."""
    rng = np.random.default_rng(seed)
    return {
        io.name: rng.standard_normal((len(io.indexes), nnet.node_dim(io.name)), dtype=np.float32)
        for io in specifications
    }
