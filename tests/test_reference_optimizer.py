"""Optimized computations cost no more than Kaldi's, nor memory; every pass is proven on every case.

With any option turned off, results stay the same.
"""

import numpy as np
import pytest
from example_generator import random_arrays
from nnet3_compiler import compile_computation
from nnet3_computation import peak_bytes, plan_memory
from nnet3_optimizer import OptimizeOptions, check_computation, optimize, verify_equivalent
from nnet3_runtime_cuda import NnetComputer
from optimizer_trials import KALDIS_PASSES, SWITCHES, Trial, working_commands
from reference_cases import ReferenceCase, network, parametrize_cases
from small_networks import network as network_of
from small_networks import request_for, stacked


@parametrize_cases()
def test_costs_no_more_than_kaldi(case: ReferenceCase) -> None:
    """Programs have no more working commands and peak bytes than Kaldi's; passes are proven.

    All passes together need no more memory than Kaldi's set.
    """
    nnet = network(case)
    compiled = compile_computation(nnet, case.request)
    check_computation(nnet, compiled, check_rewrite=True)

    few, optimized = (
        optimize(nnet, compiled, options)
        for options in (KALDIS_PASSES, OptimizeOptions(verify=True))
    )

    for each in (few, optimized):
        check_computation(nnet, each)
        verify_equivalent(nnet, compiled, each)
    kaldi = case.structure["optimized"]
    assert working_commands(few) <= kaldi["working_commands"]
    assert peak_bytes(optimized) <= peak_bytes(few) <= kaldi["peak_bytes"]


LOWERED = {
    "recompute_activations": "network/tdnnf-chain",
    "split_statistics": "network/xvector-stats",
}
"""Passes that lower the peak, and a network in which they lower it by a fifth."""


@parametrize_cases()
def test_without_one_option(case: ReferenceCase) -> None:
    """With any single option turned off, results are those of the compiled computation, proven."""
    nnet = network(case)
    trial = Trial(
        nnet=nnet,
        request=case.request,
        inputs=case.node_arrays("input"),
        output_derivs=case.node_arrays("output_deriv"),
    )
    with_all = trial.optimized(OptimizeOptions())

    for switch in SWITCHES:
        without = trial.optimized(OptimizeOptions(**{switch: False}), known=with_all)
        if LOWERED.get(switch) == case.name:
            assert peak_bytes(with_all) < 0.8 * peak_bytes(without)


SPLICES = stacked(
    8,
    "a Affine input-dim=8 output-dim=24",
    "a.relu RectifiedLinear dim=24 self-repair-scale=0",
    "a.norm BatchNorm dim=24",
    "b Affine input-dim=72 output-dim=24",
    "b.relu RectifiedLinear dim=24 self-repair-scale=0",
    "b.norm BatchNorm dim=24",
    "c Affine input-dim=24 output-dim=400",
).replace("input=a.norm", "input=Append(Offset(a.norm, -1), a.norm, Offset(a.norm, 1))")


@pytest.mark.parametrize(
    ("option", "error"), [("recompute_activations", 0.0), ("order_rows_early", 2e-6)]
)
def test_same_results_in_less_memory(option: str, error: float) -> None:
    """Results with and without a pass are equal: bit for bit if no sum is rearranged."""
    nnet, rng = network_of(SPLICES), np.random.default_rng(1)
    request = request_for(
        range(-1, 30),
        range(28),
        4,
        derivs=("input", "output"),
        need_model_derivative=True,
        store_component_stats=True,
    )
    inputs, derivs = (random_arrays(nnet, each, rng) for each in (request.inputs, request.outputs))
    trial = Trial(nnet=nnet, request=request, inputs=inputs, output_derivs=derivs)
    without = optimize(nnet, trial.compiled, OptimizeOptions(**{option: False}))
    with_pass = trial.optimized(OptimizeOptions(verify=True))

    expected, found = trial.results(without), trial.results(with_pass)

    for name, values in expected.items():
        scale = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(found[name], values, rtol=0, atol=error * scale, err_msg=name)
    memory = [NnetComputer(nnet, each).memory_bytes for each in (with_pass, without)]
    assert memory[0] < memory[1]


EXCESS = 1.02

OPTIONS = OptimizeOptions(), OptimizeOptions(recompute_activations=False)


@parametrize_cases()
def test_plan_is_near_the_bound(case: ReferenceCase) -> None:
    """A plan is within 2 % of a lower bound, with two sets of passes or none."""
    nnet = network(case)
    compiled = compile_computation(nnet, case.request)

    for computation in (compiled, *(optimize(nnet, compiled, options) for options in OPTIONS)):
        for alignment in (4, 64):
            plan = plan_memory(computation, alignment=alignment)
            assert plan.arena_bytes <= EXCESS * plan.lower_bound_bytes
