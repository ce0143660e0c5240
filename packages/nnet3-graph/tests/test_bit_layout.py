"""Sets of rows stored as bits behave like sets of tuples."""

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.indexes import as_indexes
from nnet3_graph.rules import Fixed, Shift
from nnet3_graph.sets.bits import BitLayout, Hull, change_layout, moved_over

PATTERNS, FIRST_T, LAST_T, FIRST_X, LAST_X = 2, -3, 5, -1, 1


def layout(t_guard=8, x_guard=2):
    """A small layout of two patterns."""
    return BitLayout(
        t_first=FIRST_T,
        num_t=LAST_T - FIRST_T + 1,
        x_first=FIRST_X,
        num_x=LAST_X - FIRST_X + 1,
        num_patterns=PATTERNS,
        t_guard=t_guard,
        x_guard=x_guard,
    )


SETS = st.sets(
    st.tuples(
        st.integers(0, PATTERNS - 1), st.integers(FIRST_T, LAST_T), st.integers(FIRST_X, LAST_X)
    )
)
EVERYTHING = {
    (n, t, x)
    for n in range(PATTERNS)
    for t in range(FIRST_T, LAST_T + 1)
    for x in range(FIRST_X, LAST_X + 1)
}


def bits(rows, where=None):
    """A set of tuples as bits."""
    return (where or layout()).set_of(as_indexes(sorted(rows)))


def rows(found, where=None):
    """Bits as a set of tuples, without rows outside of the box."""
    where = where or layout()
    return set(map(tuple, where.indexes(found & where.box(where.hull)).tolist()))


@given(SETS)
def test_indexes_and_back(some):
    """A set is restored from its bits."""
    assert rows(bits(some)) == some


@given(SETS, st.integers(-9, 9), st.integers(-3, 3))
def test_shift(some, t, x):
    """Moved rows stay in their pattern, or leave the box."""
    need = [0]
    Shift(0, t, x).demand(bits(some), layout(), need)
    assert rows(need[0]) == {(n, a + t, b + x) for n, a, b in some} & EVERYTHING

    available = Shift(0, t, x).available(-1, layout(), [bits(some)])
    assert rows(available) == {(n, a, b) for n, a, b in EVERYTHING if (n, a + t, b + x) in some}


@given(
    SETS,
    st.integers(-2, 2),
    st.one_of(st.none(), st.integers(-4, 6)),
    st.one_of(st.none(), st.integers(-2, 2)),
)
def test_fixed(some, t, fixed_t, fixed_x):
    """All rows of a pattern read a fixed t or x, whatever their own."""
    rule = Fixed(source=0, t=t if fixed_t is None else 0, fixed_t=fixed_t, fixed_x=fixed_x)

    def target(n, a, b):
        return n, a + t if fixed_t is None else fixed_t, b if fixed_x is None else fixed_x

    need = [0]
    rule.demand(bits(some), layout(), need)
    assert rows(need[0]) == {target(*row) for row in some} & EVERYTHING

    available = rule.available(-1, layout(), [bits(some)])
    assert rows(available) == {row for row in EVERYTHING if target(*row) in some}


@given(SETS, st.integers(-12, 12), st.integers(1, 4), st.integers(0, 9))
def test_moved_over(some, start, step, count):
    """`moved_over` gives the union of a set moved by each of several equidistant offsets."""
    offsets = range(start, start + step * count, step)

    moved = moved_over(bits(some), layout().clamped(offsets))

    assert (
        rows(moved) == {(n, t + offset, x) for n, t, x in some for offset in offsets} & EVERYTHING
    )


@given(st.integers(1, 20), st.integers(0, 19))
def test_residue(modulus, residue):
    """`residue` gives the rows with a residue of t for any modulus."""
    residue %= modulus
    expected = {row for row in EVERYTHING if row[1] % modulus == residue}

    assert rows(layout().residue(modulus, residue)) == expected
    assert not expected or residue in layout().residues(modulus, bits(EVERYTHING))


@given(SETS, st.integers(1, 40))
def test_residues_of_a_set(some, modulus):
    """`residues` gives all residues of a set; for large moduli it gives no others."""
    found = list(layout().residues(modulus, bits(some)))
    occurring = {t % modulus for _, t, _ in some}

    assert occurring <= set(found)
    assert len(found) == len(set(found))
    assert modulus <= 16 or occurring == set(found)


@given(SETS, SETS, st.integers(-9, 9))
def test_sparse_sets_are_those_of_a_table(some, asked, shift):
    """In a box that is too large for a table, results are the same."""
    large = attrs.evolve(layout(t_guard=400_000), num_t=400_000)
    need = [0]
    Shift(0, shift, 0).demand(bits(some, large), large, need)
    expected = {(n, t + shift, x) for n, t, x in some if t + shift >= FIRST_T}

    assert rows(need[0], large) == expected
    asked = as_indexes(sorted(asked | some))
    found = large.contains(bits(some, large), asked)
    assert found.tolist() == [tuple(row) in some for row in asked.tolist()]


@given(st.integers(-6, 8), st.integers(-6, 8), st.integers(-3, 3), st.integers(-3, 3))
def test_box(t_first, t_last, x_first, x_last):
    """A box contains the rows within its bounds."""
    hull = Hull(t_first, t_last, x_first, x_last)

    assert rows(layout().box(hull)) == {
        (n, t, x) for n, t, x in EVERYTHING if t_first <= t <= t_last and x_first <= x <= x_last
    }


@given(SETS)
def test_hull_and_membership(some):
    """The hull of a set is the hull of its rows, and `contains` agrees row by row."""
    indexes = as_indexes([*sorted(EVERYTHING), (0, LAST_T + 1, 0), (1, 0, FIRST_X - 1)])

    found = layout().contains(bits(some), indexes)

    assert found.tolist() == [row in some for row in map(tuple, indexes.tolist())]
    if some:
        _, t, x = np.array(sorted(some)).T
        assert layout().hull_of(bits(some)) == (t.min(), t.max(), x.min(), x.max())


@given(SETS, st.integers(-5, 5), st.integers(1, 12), st.booleans())
def test_change_frame(some, t_first, num_t, single):
    """In another layout, a set keeps the rows that lie within that layout."""
    if single:
        some = {row for row in some if row[0] == row[2] == 0}
    num_patterns, num_x, x_first = (1, 1, 0) if single else (PATTERNS, 3, FIRST_X)
    box = {"x_first": x_first, "num_x": num_x, "num_patterns": num_patterns}
    old = attrs.evolve(layout(t_guard=2, x_guard=0), **box)
    new = attrs.evolve(old, t_first=t_first, num_t=num_t)

    changed = change_layout(bits(some, old), old, new)

    assert rows(changed, new) == {row for row in some if t_first <= row[1] < t_first + num_t}
