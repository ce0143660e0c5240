"""Random networks give the same outputs before and after collapsing."""

from random import Random

import numpy as np
import pytest
from example_generator import draw_request, is_computable, random_arrays
from network_generator import LAYERS, NetworkWriter
from nnet3_compiler import compile_computation
from nnet3_descriptors import Nnet, parse_config, set_test_mode
from nnet3_descriptors.editing import CollapseOptions, collapse_model
from nnet3_graph import ComputationRequest
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from optimizer_trials import TOLERANCE

SEEDS = range(25)

FOLDED = {
    "Affine": "input-dim=4 output-dim=4",
    "BatchNorm": "dim=4 block-dim=2 target-rms=0.7",
    "Dropout": "dim=4 dropout-proportion=0.25",
    "FixedAffine": "input-dim=4 output-dim=4",
    "FixedScale": "dim=4",
    "GeneralDropout": "dim=4 block-dim=2 dropout-proportion=0.4",
    "Linear": "input-dim=4 output-dim=4",
    "NaturalGradientAffine": "input-dim=4 output-dim=4",
    "Tdnn": "input-dim=4 output-dim=4 time-offsets=-1,0",
    "TimeHeightConvolution": (
        "num-filters-in=2 num-filters-out=2 height-in=2 height-out=2 height-offsets=-1,0,1 "
        "time-offsets=0,1 required-time-offsets=0"
    ),
}
"""Component types that are folded into others, or take others in."""

SPLICING = {
    "Affine": "input-dim=8 output-dim=4",
    "FixedAffine": "input-dim=8 output-dim=4",
    "Linear": "input-dim=8 output-dim=4",
    "NaturalGradientAffine": "input-dim=8 output-dim=4",
}
"""Those with two parts of the input."""


def add_chain(writer: NetworkWriter, name: str, shared: dict[str, str]) -> None:
    """Adds a chain of components, some of which can be folded into the next one.

    Args:
        writer: The network.
        name: Name of the last node.
        shared: One component for each line of options, which other nodes may share.
    """
    rng = writer.rng
    source = writer.leaf()
    length = rng.randint(2, 5)
    for number in range(length):
        moved = f"Offset({source}, {rng.randint(-2, 2)})"
        sources = [source] * 4 + [moved] * 2 + [f"Sum({source}, Const(0.5, 4))"]
        if rng.randrange(4) == 0:
            kinds, descriptor = SPLICING, f"Append({source}, {moved})"
        else:
            kinds, descriptor = FOLDED, rng.choice([*sources, f"Scale(-0.5, {source})"])
        kind = rng.choice(sorted(kinds))
        line = f"{kind} {kinds[kind]}"
        if line not in shared or rng.randrange(3):
            shared[line] = writer.component(kind, kinds[kind])
        node = name if number == length - 1 else f"{name}.{number}"
        source = writer.node(node, shared[line], descriptor)
        if rng.randrange(5) == 0:
            writer.sources.append(source)
    writer.sources.append(source)


def draw_network(rng: Random) -> Nnet:
    """A network in test mode, its batch-norms with random statistics."""
    writer = NetworkWriter(rng, sources=["input"], inputs=["input-node name=input dim=4"])
    shared: dict[str, str] = {}
    for number in range(rng.randint(1, 4)):
        name = f"layer{number}"
        if rng.randrange(4) == 0:
            LAYERS[rng.choice(sorted(LAYERS))](writer, name)
        else:
            add_chain(writer, name, shared)
    writer.nodes.append(f"output-node name=output input={writer.sum()}")
    numbers = np.random.default_rng(rng.getrandbits(32))
    nnet = parse_config(writer.text(), rng=numbers)
    statistics = {}
    for component_name, component in zip(nnet.component_names, nnet.components, strict=True):
        if component.type == "BatchNormComponent":
            columns = component.block_dim
            statistics[f"{component_name}.stats_mean"] = numbers.standard_normal(columns)
            statistics[f"{component_name}.stats_var"] = numbers.uniform(0.5, 2.0, columns)
    return set_test_mode(nnet.with_state_dict(statistics))


def case_of_seed(seed: int) -> tuple[Nnet, ComputationRequest]:
    """A network and a request that it can compute."""
    rng = Random(seed)
    while True:
        nnet = draw_network(rng)
        request = draw_request(rng, nnet, derivatives=False)
        given = {io.name for io in request.inputs}
        if given == {"input"} and is_computable(nnet, request):
            return nnet, request


def outputs(nnet: Nnet, request: ComputationRequest, inputs: dict) -> np.ndarray:
    """The output, (rows, dim)."""
    computation = optimize(nnet, compile_computation(nnet, request))
    return NnetComputer(nnet, computation).forward(inputs)["output"]


@pytest.mark.parametrize("seed", SEEDS)
def test_collapsed_is_the_same(seed: int) -> None:
    """With all pairs collapsed, and with some."""
    nnet, request = case_of_seed(seed)
    inputs = random_arrays(nnet, request.inputs, seed)
    expected = outputs(nnet, request, inputs)
    rng = Random(seed)
    some = CollapseOptions(
        **{name: rng.random() < 0.5 for name in ("dropout", "batchnorm", "scale")}
    )
    for options in (CollapseOptions(), some):
        found = outputs(collapse_model(nnet, options), request, inputs)

        scale = max(np.abs(expected).max(), 1.0)
        np.testing.assert_allclose(found / scale, expected / scale, atol=TOLERANCE, rtol=0)


def test_there_is_something_to_collapse() -> None:
    """Most of these networks lose nodes, some of them many."""
    lost = []
    for seed in SEEDS:
        nnet, _ = case_of_seed(seed)
        lost.append((len(nnet.nodes) - len(collapse_model(nnet).nodes)) // 2)

    assert np.count_nonzero(lost) >= 0.6 * len(lost)
    assert max(lost) >= 5
