"""Recomputing values instead of storing them keeps results equal and takes less memory."""

import numpy as np
import pytest
from judged_cases import random_arrays
from nnet3_optimizer import OptimizeOptions, check_computation, optimize, verify_equivalent
from nnet3_runtime_cuda import NnetComputer
from optimizer_trials import Trial
from small_networks import network, request_for

AFFINE = "component name={0} type=AffineComponent input-dim={1} output-dim={2}\n"
LAYER = (
    "component name={0}.relu type=RectifiedLinearComponent dim={1} self-repair-scale=0\n"
    "component name={0}.norm type=BatchNormComponent dim={1}\n"
    "component-node name={0} component={0} input={2}\n"
    "component-node name={0}.relu component={0}.relu input={0}\n"
    "component-node name={0}.norm component={0}.norm input={0}.relu\n"
)
SPLICES = (
    "input-node name=input dim=8\n"
    + AFFINE.format("a", 8, 24)
    + LAYER.format("a", 24, "input")
    + AFFINE.format("b", 72, 24)
    + LAYER.format("b", 24, "Append(Offset(a.norm, -1), a.norm, Offset(a.norm, 1))")
    + AFFINE.format("c", 24, 400)
    + "component-node name=c component=c input=b.norm\noutput-node name=output input=c\n"
)
BYPASS = (
    "input-node name=input dim=8\n"
    + AFFINE.format("a", 8, 24)
    + LAYER.format("a", 24, "input")
    + AFFINE.format("b", 24, 24)
    + LAYER.format("b", 24, "a.norm")
    + "component name=noop type=NoOpComponent dim=24\n"
    "component-node name=noop component=noop input=Sum(Scale(0.66, a.norm), b.norm)\n"
    + AFFINE.format("c", 24, 24)
    + AFFINE.format("d", 24, 400)
    + "component-node name=c component=c input=noop\ncomponent-node name=d component=d input=c\n"
    "output-node name=output input=d\n"
)
POOLING = (
    "input-node name=input dim=60\n"
    + AFFINE.format("a", 60, 200)
    + LAYER.format("a", 200, "input")
    + "component name=extract type=StatisticsExtractionComponent input-dim=200\n"
    "component name=pool type=StatisticsPoolingComponent input-dim=401 left-context=0 "
    "right-context=100 output-stddevs=true\n"
    "component-node name=extract component=extract input=a.norm\n"
    "component-node name=pool component=pool input=extract\n"
    + AFFINE.format("c", 400, 8)
    + "component-node name=c component=c input=pool\noutput-node name=output input=c\n"
)


def trial(config: str, frames: int, sequences: int) -> Trial:
    """A training request with random values; each sequence has one output frame."""
    nnet = network(config)
    outputs = 1 if "pool" in config else frames - 2
    rng = np.random.default_rng(1)
    request = request_for(
        range(-1, frames),
        range(outputs),
        sequences,
        derivs=("input", "output"),
        need_model_derivative=True,
        store_component_stats=True,
    )
    return Trial(
        nnet=nnet,
        request=request,
        inputs=random_arrays(nnet, request.inputs, rng),
        output_derivs=random_arrays(nnet, request.outputs, rng),
    )


@pytest.mark.parametrize(
    ("config", "frames", "sequences", "option", "error"),
    [
        (SPLICES, 30, 4, "recompute_activations", 0.0),
        (SPLICES, 30, 4, "order_rows_early", 2e-6),
        (BYPASS, 30, 4, "recompute_activations", 2e-6),
        (POOLING, 61, 28, "split_statistics", 2e-6),
    ],
    ids=["splices", "order of rows", "bypass", "statistics"],
)
def test_same_results_in_less_memory(
    config: str, frames: int, sequences: int, option: str, error: float
) -> None:
    """Results with and without a pass are equal: bit for bit if no sum is rearranged."""
    case = trial(config, frames, sequences)
    with_pass = optimize(case.nnet, case.compiled)
    without = optimize(case.nnet, case.compiled, OptimizeOptions(**{option: False}))
    check_computation(case.nnet, with_pass)
    verify_equivalent(case.nnet, without, with_pass)

    expected, found = case.results(without), case.results(with_pass)

    assert found.keys() == expected.keys()
    for name, values in expected.items():
        scale = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(found[name], values, rtol=0, atol=error * scale, err_msg=name)
    memory = [NnetComputer(case.nnet, each).memory_bytes for each in (with_pass, without)]
    assert memory[0] < memory[1]
