"""Parts of an analysis that passes hand on equal those of a new analysis of the draft."""

from typing import Any

import attrs
import numpy as np
from brief_computations import draft
from hypothesis import given, settings
from nnet3_computation import NnetComputation
from nnet3_computation.analysis import PairLists, SubmatrixAccesses
from nnet3_descriptors import Nnet
from nnet3_optimizer import Analysis, OptimizeOptions
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.pipeline import PIPELINE
from optimizer_networks import examples

PARTS = ("submatrix_accesses", "uses", "lifetimes", "matrix_use")


def fresh(draft: Draft) -> Analysis:
    """A new analysis of a draft."""
    return Analysis(
        layout=attrs.evolve(draft.layout),
        table=draft.table,
        pair_lists=PairLists(draft.pair_lists.lists),
        component_properties=draft.component_properties,
    )


def by_command(accesses: SubmatrixAccesses) -> list[tuple[int, int, int]]:
    """Accesses as (command, submatrix, access), sorted."""
    columns = (accesses.command, accesses.submatrix, accesses.access)
    return sorted(zip(*(each.tolist() for each in columns), strict=True))


def comparable(part: Any) -> Any:
    """A part of an analysis in a form that can be compared."""
    if isinstance(part, SubmatrixAccesses):
        return by_command(part)
    if isinstance(part, tuple):
        return [each.tolist() for each in part]
    return [getattr(part, name).tolist() for name in ("matrix", "command", "submatrix", "writes")]


@given(examples())
@settings(max_examples=settings.default.max_examples // 4)
def test_handed_on(example: tuple[Nnet, NnetComputation]) -> None:
    """After each pass, the known parts are those that a new analysis finds."""
    options = OptimizeOptions()
    current = Draft.of(*example)
    for each in PIPELINE:
        if not each.wanted(options):
            continue
        after = each.run(current, options)
        if after is current:
            continue
        expected = fresh(after)
        for name in PARTS:
            part = vars(after.analysis).get(name)
            if part is not None:
                assert comparable(part) == comparable(getattr(expected, name)), (each.name, name)
        if (needs_zeros := vars(after.analysis).get("needs_zeros")) is not None:
            assert (expected.needs_zeros <= needs_zeros).all(), each.name
        named = PairLists(after.pair_lists.lists).named
        assert np.array_equal(after.pair_lists.named.splits, named.splits)
        assert np.array_equal(after.pair_lists.named.values, named.values)
        current = after


def test_what_is_not_known_is_not_handed_on() -> None:
    """Taking over results computes none."""
    before, after = (draft("m1 = accept input\nprovide output = m1").analysis for _ in range(2))
    lifetimes = before.lifetimes

    after.take_over(before, "lifetimes", "uses")

    assert after.lifetimes is lifetimes
    assert "uses" not in vars(before) | vars(after)


def test_merging_knows_whose_zeros_are_looked_at() -> None:
    """A matrix that is set before it is copied needs no zeros; one that is added to does."""
    text = """
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        m3 = m2
        m4 += m3
        m4 += m1
        provide output = m4
        segment end
        """
    [merge] = [each for each in PIPELINE if each.name == "merge_variables"]

    merged = merge.run(draft(text), OptimizeOptions())

    known = vars(merged.analysis).get("needs_zeros")
    assert isinstance(known, np.ndarray)
    assert np.flatnonzero(known).tolist() == [4]
    assert np.flatnonzero(fresh(merged).needs_zeros).tolist() == [4]
