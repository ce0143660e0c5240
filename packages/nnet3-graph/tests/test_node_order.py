"""Strongly connected components of directed graphs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_graph.nodes.order import strongly_connected_components


@st.composite
def directed_graphs(draw: st.DrawFn) -> list[list[int]]:
    """A directed graph, as the vertices that each one leads to."""
    size = draw(st.integers(1, 7))
    vertices = st.sets(st.integers(0, size - 1), max_size=3)
    return [sorted(draw(vertices)) for _ in range(size)]


def reaches(arcs: list[list[int]]) -> np.ndarray:
    """Which vertices lead to which vertices: (vertices, vertices) bool."""
    reached = np.eye(len(arcs), dtype=bool)
    for vertex, others in enumerate(arcs):
        reached[vertex, others] = True
    for middle in range(len(arcs)):
        reached |= reached[:, [middle]] & reached[[middle]]
    return reached


@given(directed_graphs())
def test_groups_are_those_that_reach_each_other(arcs: list[list[int]]) -> None:
    """Vertices share a group if and only if each leads to the other; later groups come first."""
    groups = strongly_connected_components(arcs)
    group_of = {vertex: number for number, group in enumerate(groups) for vertex in group}
    reached = reaches(arcs)

    assert sorted(vertex for group in groups for vertex in group) == list(range(len(arcs)))
    for first in range(len(arcs)):
        for second in range(len(arcs)):
            together = reached[first, second] and reached[second, first]
            assert together == (group_of[first] == group_of[second])
            if reached[first, second]:
                assert group_of[second] <= group_of[first]


def test_long_chains_need_no_recursion() -> None:
    """A chain or a circle of nodes may be longer than Python's stack is deep."""
    size = 20_000
    circle = [[(vertex + 1) % size] for vertex in range(size)]

    assert len(strongly_connected_components(circle)) == 1
    assert len(strongly_connected_components([*circle[:-1], []])) == size
