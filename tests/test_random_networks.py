"""Random networks and requests: results do not depend on how a request is compiled and optimized.

RANDOM_NETWORKS and RANDOM_NETWORKS_SEED in the environment set the number of networks and the first
seed; `pytest tests/test_random_networks.py -k seed17` runs a single one.
"""

import os
from collections import Counter

import numpy as np
import pytest
from example_generator import example_of_seed, random_arrays
from network_generator import LAYERS
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import peak_bytes
from nnet3_optimizer import OptimizeOptions, check_computation
from optimizer_trials import Trial

COUNT = int(os.environ.get("RANDOM_NETWORKS", "500"))
FIRST = int(os.environ.get("RANDOM_NETWORKS_SEED", "0"))

FOUND = (50303, 90609)
"""Seeds of networks that revealed faults in nightly runs."""

parametrize_seeds = pytest.mark.parametrize(
    "seed", [*FOUND, *range(FIRST, FIRST + COUNT)], ids=lambda seed: f"seed{seed}"
)


@parametrize_seeds
def test_optimizing_changes_no_result(seed: int) -> None:
    """Outputs, derivatives and statistics agree; every pass and plan is checked, passes proven."""
    example = example_of_seed(seed)
    nnet, request = example.nnet, example.request
    trial = Trial(
        nnet=nnet,
        request=request,
        inputs=random_arrays(nnet, request.inputs, seed),
        output_derivs=random_arrays(nnet, [o for o in request.outputs if o.has_deriv], seed + 1),
    )
    check_computation(nnet, trial.compiled, check_rewrite=True)

    optimized = trial.optimized(OptimizeOptions(verify=True))

    assert peak_bytes(optimized) <= peak_bytes(trial.compiled)
    plain = compile_computation(nnet, request, CompilerOptions(shortcut=False))
    assert not trial.difference(plain)


def test_the_networks_are_of_all_kinds() -> None:
    """The first hundred networks have each kind of layer several times, and varied requests."""
    examples = [example_of_seed(seed) for seed in range(100)]
    kinds = Counter(kind for example in examples for kind in set(example.kinds))
    requests = [example.request for example in examples]

    assert min(kinds[kind] for kind in LAYERS) >= 5
    assert 50 <= sum(any(io.has_deriv for io in each.outputs) for each in requests) < 100
    assert sum(len(each.outputs) > 1 for each in requests) >= 20
    assert sum(len(each.request.inputs) > len(each.nnet.input_nodes) for each in examples) >= 5
    assert sum(bool(np.any(each.outputs[0].indexes[:, 2])) for each in requests) >= 5
