"""Optimizing random computations changes only their cost."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_computation import NnetComputation, peak_bytes
from nnet3_descriptors import Nnet
from nnet3_optimizer import OptimizeOptions, check_computation, optimize, verify_equivalent
from optimizer_networks import examples
from visible_results import same_results

Example = tuple[Nnet, NnetComputation]

SWITCHES = [
    field.name
    for field in attrs.fields(OptimizeOptions)
    if field.default is True and field.name != "optimize"
]
EVERYTHING = OptimizeOptions(verify=True)


@given(examples())
@settings(max_examples=3 * settings.default.max_examples // 5)
def test_optimized_computation_gives_the_same_results(example: Example) -> None:
    """Every pass is checked and proven, and runs agree."""
    nnet, computation = example
    check_computation(nnet, computation, check_rewrite=True)

    optimized = optimize(nnet, computation, EVERYTHING)

    assert same_results(nnet, computation, optimized)
    assert peak_bytes(optimized) <= peak_bytes(computation)


@pytest.mark.parametrize("switch", SWITCHES)
@given(example=examples())
@settings(max_examples=4)
def test_without_one_option(switch: str, example: Example) -> None:
    """With one option turned off, results are correct."""
    nnet, computation = example

    optimized = optimize(nnet, computation, attrs.evolve(EVERYTHING, **{switch: False}))

    assert same_results(nnet, computation, optimized)


@given(examples(), st.sets(st.sampled_from(SWITCHES)))
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_with_any_options(example: Example, off: set[str]) -> None:
    """With any set of options, results are correct, and optimizing again changes nothing."""
    nnet, computation = example
    options = attrs.evolve(EVERYTHING, **dict.fromkeys(off, False))

    once = optimize(nnet, computation, options)
    twice = optimize(nnet, once, options)

    verify_equivalent(nnet, computation, twice)
    assert same_results(nnet, once, twice)
