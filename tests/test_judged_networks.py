"""Random networks of all kinds: NnetComputer has the results of the definition.

In the environment, JUDGED_NETWORKS is the number of networks, and JUDGED_NETWORKS_SEED the seed of
the first one. `python tests/judge_random_networks.py --first-seed 17 --count 1` judges one alone.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from emulated_device import compiler
from judge_random_networks import STRICT, judged
from judged_cases import LOOP, SEGMENTS, WHOLE, Case, case_of_seed
from nnet3_descriptors.components import component_types
from nnet3_optimizer import OptimizeOptions

COUNT = int(os.environ.get("JUDGED_NETWORKS", "500"))
FIRST = int(os.environ.get("JUDGED_NETWORKS_SEED", "0"))
BLOCK = 50

MOST_UNDECIDED = int("JUDGED_NETWORKS_SEED" in os.environ)
"""The most networks of a block that need more than double precision: none of the first ones, but
some loops make a rounding error as large as their outputs. Nine were among 100,000 networks."""

ON_DEVICE = range(FIRST + 310, FIRST + 335)
"""The networks for the kernels of the CUDA runtime, each of which is compiled. Number 310 hands
matrices over, and number 334 compresses one, before all of their elements have values."""

MOST_MASKED = 0.25
"""The largest share of cases with masks, which a device draws by itself."""


@pytest.mark.parametrize(
    "first", range(FIRST, FIRST + COUNT, BLOCK), ids=lambda first: f"from{first}"
)
def test_results_are_those_of_the_definition(first: int) -> None:
    """Outputs, derivatives, gradients and statistics agree; see `judging` for how closely."""
    verdicts = [judged(seed) for seed in range(first, min(first + BLOCK, FIRST + COUNT))]

    assert not "".join(verdict.problem for verdict in verdicts)
    assert sum(verdict.is_skipped for verdict in verdicts) <= MOST_UNDECIDED


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_results_of_a_device_are_those_of_the_definition() -> None:
    """The kernels of the CUDA runtime agree with the definition, and are watched meanwhile."""
    verdicts = [judged(seed, device=STRICT) for seed in ON_DEVICE]

    assert not "".join(verdict.problem for verdict in verdicts)
    assert sum(verdict.is_skipped for verdict in verdicts) <= MOST_MASKED * len(ON_DEVICE)


def _features(case: Case) -> set[str]:
    """The kinds of a case, and its features."""
    request, options = case.request, case.options
    indexes = [io.indexes for io in (*request.inputs, *request.outputs)]
    lengths = [
        len({t for n, t, _ in request.outputs[0].indexes.tolist() if n == m}) for m in (0, 1)
    ]
    inputs = {node.name for node in case.nnet.input_nodes}
    has_derivs = case.has_backward_pass
    return {
        name
        for name, holds in {
            case.form: True,
            "several sequences": any(table[:, 0].any() for table in indexes),
            "looped sequences": case.form == LOOP and any(t[:, 0].any() for t in indexes),
            "looped i-vectors": case.form == LOOP and len(inputs) > 1,
            "ragged": 0 < lengths[1] < lengths[0],
            "x": any(table[:, 2].any() for table in indexes),
            "given component": any(io.name not in inputs for io in request.inputs),
            "two outputs": len(request.outputs) > 1,
            "derivatives": has_derivs,
            "no derivatives": not has_derivs,
            "gradient": request.need_model_derivative,
            "no gradient": has_derivs and not request.need_model_derivative,
            "statistics": request.store_component_stats,
            "lossy compression": options.memory_compression_level == 2,
            "limited times": options.min_deriv_time is not None,
            "masks": case.is_random,
            "silence": case.has_silence,
            "wide": any(case.nnet.node_dim(node.name) >= 64 for node in case.nnet.nodes),
            "default options": options == OptimizeOptions(),
        }.items()
        if holds
    }


def test_the_networks_are_of_all_kinds() -> None:
    """Of three hundred networks, each component type is in several, and so is each feature."""
    cases = [case_of_seed(seed) for seed in range(300)]
    types = Counter(kind for case in cases for kind in case.kinds)
    features = Counter(feature for case in cases for feature in _features(case))
    drawn = {
        "frozen",
        "i-vector",
        "late term",
        "one column",
        "range",
        "recurrence",
        "shared component",
        "splice",
    }

    assert min(types[name.removesuffix("Component")] for name in component_types()) >= 2
    assert min(types[name] for name in drawn) >= 12
    assert min(features[name] for name in (WHOLE, LOOP, SEGMENTS)) >= 12
    assert min(features.values()) >= 5, features
    assert len(features) == 21
