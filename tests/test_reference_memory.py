"""Memory plans of the reference cases are close to the least memory possible."""

from nnet3_compiler import compile_computation
from nnet3_computation import plan_memory
from nnet3_optimizer import OptimizeOptions, optimize
from reference_cases import ReferenceCase, computation_request, network, parametrize_cases

EXCESS = 1.02

OPTIONS = OptimizeOptions(), OptimizeOptions(recompute_activations=False)


@parametrize_cases()
def test_plan_is_near_the_bound(case: ReferenceCase) -> None:
    """A plan is within 2 % of a lower bound, with two sets of passes or none."""
    nnet = network(case)
    compiled = compile_computation(nnet, computation_request(case))

    for computation in (compiled, *(optimize(nnet, compiled, options) for options in OPTIONS)):
        for alignment in (4, 64):
            plan = plan_memory(computation, alignment=alignment)
            assert plan.arena_bytes <= EXCESS * plan.lower_bound_bytes
