"""Optimized computations cost no more than Kaldi's, nor memory; every pass is proven on every case.

With any option turned off, results stay the same.
"""

from nnet3_compiler import compile_computation
from nnet3_computation import peak_bytes, plan_memory
from nnet3_optimizer import OptimizeOptions, check_computation, optimize, verify_equivalent
from optimizer_trials import KALDIS_PASSES, SWITCHES, Trial, working_commands
from reference_cases import ReferenceCase, network, parametrize_cases


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
        trial.optimized(OptimizeOptions(**{switch: False}), known=with_all)


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
