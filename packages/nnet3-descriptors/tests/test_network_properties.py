"""Random networks and config lines, which every written form restores; random graphs."""

import io

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from network_generator import write_network
from nnet3_descriptors import (
    Nnet,
    node_config_lines,
    parse_config,
    read_nnet,
    unvectorize,
    vectorize,
    write_nnet,
)
from nnet3_descriptors.components import ConfigLine
from nnet3_descriptors.editing import remove_orphans, rename_node
from nnet3_descriptors.structure import strongly_connected_components

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True)


@st.composite
def networks(draw: st.DrawFn) -> Nnet:
    """Draws a network of all kinds of layers."""
    writer, _ = write_network(draw(st.randoms(use_true_random=False)))
    return parse_config(writer.text(), rng=np.random.default_rng(draw(st.integers(0, 5))))


@given(networks())
@settings(max_examples=3 * settings.default.max_examples // 5)
def test_every_form_gives_the_network_back(nnet: Nnet) -> None:
    """Container, Kaldi's binary form, config lines and vectors are lossless."""
    assert Nnet.from_bytes(nnet.to_bytes()) == nnet
    assert Nnet.from_bytes(nnet.to_bytes()).to_bytes() == nnet.to_bytes()
    binary = io.BytesIO()
    write_nnet(nnet, binary)
    binary.seek(0)
    assert read_nnet(binary) == nnet
    assert parse_config("\n".join(node_config_lines(nnet)), nnet) == nnet
    assert unvectorize(nnet, vectorize(nnet)) == nnet
    assert nnet.with_state_dict(nnet.state_dict()) == nnet


@given(networks())
@settings(max_examples=3 * settings.default.max_examples // 5)
def test_text_keeps_the_nodes_and_seven_digits(nnet: Nnet) -> None:
    """Kaldi's text form keeps all but the last digits of the parameters."""
    text = io.BytesIO()
    write_nnet(nnet, text, binary=False)
    text.seek(0)

    again = read_nnet(text)

    assert again.nodes == nnet.nodes
    np.testing.assert_allclose(vectorize(again), vectorize(nnet), rtol=1e-6)


@given(networks())
@settings(max_examples=3 * settings.default.max_examples // 5)
def test_edits_that_change_nothing(nnet: Nnet) -> None:
    """Removing orphans again changes nothing; renaming there and back is the identity."""
    once = remove_orphans(nnet)

    assert remove_orphans(once) == once
    name = nnet.input_nodes[0].name
    assert rename_node(rename_node(nnet, name, "new"), "new", name) == nnet


PLAIN_VALUES = st.text("abc123-.:,()/ ", max_size=12).filter(lambda text: text == text.strip())
QUOTED_VALUES = st.text('abc =#"', max_size=12).map(lambda text: f"'{text}'")


@given(NAMES, st.dictionaries(NAMES, st.one_of(PLAIN_VALUES, QUOTED_VALUES), max_size=5))
def test_config_lines(first_word: str, written: dict[str, str]) -> None:
    """Keys, values with blanks, and quoted values of any kind are read correctly."""
    line = " ".join([first_word, *(f"{key}={value}" for key, value in written.items())])
    values = {key: value.strip("'") for key, value in written.items()}

    parsed = ConfigLine.parse(line)

    assert parsed.first_word == first_word
    assert {key: value.text for key, value in parsed.values.items()} == values
    for value in parsed.values.values():
        start, end = value.span
        assert line[start:end] == value.text


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
