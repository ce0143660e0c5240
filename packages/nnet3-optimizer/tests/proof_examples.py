"""Examples for proofs of equivalence, and the verdicts of proofs."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import EquivalenceError, optimize
from nnet3_optimizer.equivalence import Prover
from nnet3_optimizer.equivalence.pattern import IrregularError

Example = tuple[Nnet, NnetComputation, NnetComputation]
"""A network, the compiled computation of a request, and the optimized one."""


def example_of(config: str, request: ComputationRequest) -> Example:
    """The example of a network and a request."""
    nnet = parse_config(config)
    compiled = compile_computation(nnet, request)
    return nnet, compiled, optimize(nnet, compiled)


def verdict(nnet: Nnet, one: NnetComputation, other: NnetComputation, way: int) -> str:
    """Whether the proof finds two computations equal, different, or irregular."""
    try:
        Prover(nnet).compare(one, other, way)
    except EquivalenceError:
        return "different"
    except IrregularError:
        return "irregular"
    return "equal"


def verdict_on_damage(nnet: Nnet, one: NnetComputation, other: NnetComputation, way: int) -> str:
    """The verdict; damage that the checks would find, such as wrong shapes, counts as different."""
    try:
        return verdict(nnet, one, other, way)
    except IndexError:
        return "different"


def with_rows_exchanged(
    computation: NnetComputation, number: int, places: Sequence[int]
) -> NnetComputation:
    """The computation with two rows of one of its lists exchanged."""
    indexes = [rows.copy() for rows in computation.indexes]
    indexes[number][list(places)] = indexes[number][list(places[::-1])]
    return attrs.evolve(computation, indexes=tuple(indexes))


def assert_is_seen(nnet: Nnet, one: NnetComputation, other: NnetComputation, way: int) -> None:
    """Asserts that a method finds a difference irregular, and that following all rows names it."""
    assert verdict(nnet, one, other, way) == "irregular"
    with pytest.raises(EquivalenceError, match="'output' in segment 0 differs in"):
        Prover(nnet).verify(one, other)
