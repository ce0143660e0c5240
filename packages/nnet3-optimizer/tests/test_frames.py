"""Following frames, whose rows are of fewer sequences or more, proves what following rows does."""

import functools
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from damage import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors.indexes import NO_TIME
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_optimizer import ComputationError
from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.frames import KnownFrames
from nnet3_optimizer.equivalence.known_arrays import KnownArrays, near_times, without_nodes
from nnet3_optimizer.equivalence.mixture import Mixture
from nnet3_optimizer.equivalence.pattern import IrregularError
from nnet3_optimizer.equivalence.verify import BY_FRAMES
from proof_examples import (
    Example,
    assert_is_seen,
    example_of,
    verdict,
    verdict_on_damage,
    with_rows_exchanged,
)

LENGTHS = 7, 7, 5, 4, 2

RECURRENT = """
input-node name=input dim=4
component name=affine1 type=NaturalGradientAffineComponent input-dim=8 output-dim=6
component-node name=affine1 component=affine1 input=Append(Offset(input, -1), input)
component name=relu1 type=RectifiedLinearComponent dim=6
component-node name=relu1 component=relu1 input=affine1
component name=affine2 type=NaturalGradientAffineComponent input-dim=11 output-dim=10
component-node name=affine2 component=affine2 input=Append(relu1, IfDefined(Offset(memory, -1)))
component name=tanh2 type=TanhComponent dim=10
component-node name=tanh2 component=tanh2 input=affine2
dim-range-node name=memory input-node=tanh2 dim-offset=2 dim=5
component name=affine3 type=NaturalGradientAffineComponent input-dim=20 output-dim=3
component-node name=affine3 component=affine3 input=\
Append(IfDefined(Offset(tanh2, -2)), Sum(tanh2, Scale(0.5, IfDefined(Offset(tanh2, 1)))))
output-node name=output input=affine3
"""

STATISTICS = """
input-node name=input dim=4
component name=affine1 type=AffineComponent input-dim=8 output-dim=5
component-node name=affine1 component=affine1 input=Append(Offset(input, -1), input)
component name=extract type=StatisticsExtractionComponent input-dim=5 input-period=1 \
output-period=2 include-variance=true
component-node name=extract component=extract input=affine1
component name=pool type=StatisticsPoolingComponent input-dim=11 input-period=2 \
left-context=4 right-context=4 num-log-count-features=0 output-stddevs=true
component-node name=pool component=pool input=extract
component name=affine2 type=AffineComponent input-dim=15 output-dim=3
component-node name=affine2 component=affine2 input=Append(affine1, Round(pool, 2))
output-node name=output input=affine2
"""


def ragged(name: str, begin: int, *, has_deriv: bool = False) -> IoSpecification:
    """Rows from some time on, of sequences of several lengths, by sequence."""
    rows = [(n, t, 0) for n, length in enumerate(LENGTHS) for t in range(begin, length)]
    return IoSpecification(name=name, indexes=rows, has_deriv=has_deriv)


@functools.cache
def example(config: str) -> Example:
    """A network run on sequences of several lengths."""
    request = ComputationRequest(
        inputs=(ragged("input", -1),),
        outputs=(ragged("output", 0, has_deriv=True),),
        need_model_derivative=True,
        store_component_stats=True,
    )
    return example_of(config, request)


EXAMPLES = {"recurrent": RECURRENT, "statistics": STATISTICS}


@pytest.mark.parametrize("config", EXAMPLES.values(), ids=EXAMPLES)
def test_frames_are_enough(config: str) -> None:
    """A program that is right is proved by frames alone."""
    nnet, compiled, optimized = example(config)

    assert verdict(nnet, compiled, optimized, BY_FRAMES) == "equal"
    assert verdict(nnet, compiled, optimized, 1) == "equal"


@pytest.mark.parametrize("config", EXAMPLES.values(), ids=EXAMPLES)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    rng=st.randoms(use_true_random=False),
    is_optimized=st.booleans(),
)
@settings(max_examples=200)
def test_frames_hide_no_damage(config: str, kind: str, rng: Random, is_optimized: bool) -> None:
    """What is different row by row is not equal by frames."""
    nnet, compiled, optimized = example(config)
    original = optimized if is_optimized else compiled
    try:
        damaged = KINDS[kind](rng, original)
    except ComputationError:
        return
    if damaged is not None and verdict_on_damage(nnet, original, damaged, BY_FRAMES) == "equal":
        assert verdict_on_damage(nnet, original, damaged, 1) == "equal"


def cindexes(rows: list[tuple[int, int]]) -> np.ndarray:
    """Cindexes of some node, given n and t."""
    return np.array([(0, n, t, 0) for n, t in rows], dtype=np.int32)


@given(st.sets(st.sampled_from(np.cumsum(LENGTHS).tolist())))
def test_parts_of_frames_add_up(splits: set[int]) -> None:
    """Elements written to all parts of a matrix, each with its share, are those of the matrix."""
    rows = [(n, t) for n, length in enumerate(LENGTHS) for t in range(length)]
    known = KnownFrames()
    layout = known.layout(cindexes(rows))
    ends = sorted({0, *splits, len(rows)})
    total = [0] * max(LENGTHS)
    for begin, end in pairwise(ends):
        part = known.part(layout, begin, end - begin)
        for frame, share in enumerate(part.shares, part.begin):
            total[frame] = (total[frame] + share) % PRIME

    assert total == [1] * max(LENGTHS)


def test_rows_of_one_sequence_at_one_time_are_several_frames() -> None:
    """Matrices that were put together have the same n and t twice."""
    layout = KnownFrames().layout(cindexes([(0, 0), (1, 0), (0, 0), (0, 1)]))

    assert layout.frame.tolist() == [0, 0, 1, 2]
    assert layout.sizes.tolist() == [2, 1, 1]


def test_frames_that_are_not_next_to_each_other_are_refused() -> None:
    """A submatrix with rows of the first and the last frame would hold those in between."""
    known = KnownFrames()
    layout = known.layout(cindexes([(0, 0), (0, 1), (0, 2), (1, 2), (1, 0)]))

    with pytest.raises(IrregularError):
        known.part(layout, 3, 2)


def test_mixtures_are_sums() -> None:
    """Each row of a mixture is a row, or nothing, and others times their factors."""
    mixture = Mixture.of(3, [(0, 1, 1), (1, 0, 7), (1, 1, 1), (1, 2, 1)])

    assert isinstance(mixture, Mixture)
    assert mixture.taken_from([10, 100, 1000]) == [100, 1170, 0]
    assert Mixture.of(2, [(1, 4, 1)]) == [-1, 4]


def test_rows_that_change_their_sequence_are_refused() -> None:
    """Two rows of a list that change places are seen, and named by all rows."""
    nnet, compiled, _ = example(RECURRENT)
    longest = max(range(len(compiled.indexes)), key=lambda each: len(compiled.indexes[each]))

    assert_is_seen(nnet, compiled, with_rows_exchanged(compiled, longest, [0, 1]), BY_FRAMES)


def test_arrays_are_found_by_all_that_they_hold() -> None:
    """Arrays that share the places that are looked at first, but not all, are different."""
    known, numbers = KnownArrays[int](), iter(range(9))
    one = np.zeros((2, 5000), dtype=np.int64)
    other = one.copy()
    other[1, 4321] = 1

    found = [known.get(each, lambda: next(numbers)) for each in (one, other, one.copy(), other)]

    assert found == [0, 1, 0, 1]
    assert known.get(one[:, :4999], lambda: next(numbers)) == 2


def test_cindexes_are_taken_without_nodes() -> None:
    """Cindexes are told apart by n, t and x, negative ones too, not by nodes."""
    rows = np.array([(5, 1, -3, 2), (6, 1, -3, 2), (5, 1, -3, -2), (5, 0, -3, 2), (5, 1, 3, 2)])

    assert without_nodes(rows).tolist() == [[1, 1, 1, 0, 1], [-3, -3, -3, -3, 3], [2, 2, -2, 2, 2]]


def test_no_time_is_next_to_the_others() -> None:
    """Times stay as they are, and none is one before the first."""
    assert near_times(np.array([3, NO_TIME, 5])).tolist() == [3, 2, 5]
    assert near_times(np.array([NO_TIME])).tolist() == [-1]
    assert near_times(np.array([-4, 7])).tolist() == [-4, 7]
