"""Random descriptors: parsing inverts printing, and the normal form keeps the meaning."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors import parse_descriptor
from nnet3_descriptors.descriptors import Const, Failover, SumDescriptor
from nnet3_descriptors.descriptors.descriptor import normalize
from nnet3_descriptors.descriptors.grammar import Expression, parse_expression
from nnet3_descriptors.indexes import as_indexes, make_indexes

NODES = ("a", "b", "c.d-1")
NODE_INDEX = {name: number for number, name in enumerate(NODES)}
POWERS_OF_TWO = st.sampled_from(["-2", "-1", "-0.5", "0.25", "1", "4"])
"""Scales whose products are exact."""

Value = tuple[dict[tuple[str, int, int], float], float] | None
"""One part at one index: weights of the cindexes and the constant, or None if not computable."""


@st.composite
def descriptors(
    draw: st.DrawFn, parts: int | None = None, depth: int = 4, forwarding: bool = False
) -> str:
    """Draws a descriptor as users write it.

    Args:
        draw: Hypothesis' function.
        parts: The number of appended parts; any if None.
        depth: The deepest nesting.
        forwarding: Whether to leave out forms that make it a sum.
    """
    parts = draw(st.sampled_from([1, 1, 1, 2, 3])) if parts is None else parts
    forms = [] if parts > 1 else ["", "" if forwarding else "Const"]
    if depth > 0:
        forms += ["Append", "Offset", "Switch", "Round", "ReplaceIndex", "Scale"]
        forms += [] if forwarding else ["Sum", "Sum", "Failover", "Failover", "IfDefined"]
    form = draw(st.sampled_from(forms or ["Append"]))
    below = max(depth - 1, 0)

    def operand(count: int = parts, only_forwarding: bool = forwarding) -> str:
        return draw(descriptors(count, below, only_forwarding))

    small = st.integers(-5, 5)
    match form:
        case "":
            return draw(st.sampled_from(NODES))
        case "Const":
            return f"Const({draw(POWERS_OF_TWO)}, 3)"
        case "Append":
            sizes = draw(st.sampled_from([[1] * parts, [parts], [1, parts - 1], [parts - 1, 1]]))
            return f"Append({', '.join(operand(size) for size in sizes if size > 0)})"
        case "Offset":
            x_offset = draw(st.sampled_from(["", ", 1", ", -2"]))
            return f"Offset({operand()}, {draw(small)}{x_offset})"
        case "Round":
            return f"Round({operand()}, {draw(st.integers(1, 4))})"
        case "ReplaceIndex":
            return f"ReplaceIndex({operand()}, {draw(st.sampled_from('tx'))}, {draw(small)})"
        case "Scale":
            return f"Scale({draw(POWERS_OF_TWO)}, {operand()})"
        case "IfDefined":
            return f"IfDefined({operand()})"
        case "Failover":
            return f"Failover({operand()}, {operand()})"
        case _:
            operands = [
                operand(parts, forwarding or form == "Switch")
                for _ in range(draw(st.integers(1, 3)))
            ]
            return f"{form}({', '.join(operands)})"


class Availability:
    """Says for every cindex, at random, whether it is available."""

    def __init__(self, bits: Sequence[bool]) -> None:
        self._bits = bits

    def __call__(self, name: str, t: int, x: int) -> bool:
        """Whether the cindex of this node, t and x is available."""
        return self._bits[(17 * NODE_INDEX[name] + 7 * t + 3 * x) % len(self._bits)]


def evaluate(expression: Expression, t: int, x: int, available: Availability) -> list[Value]:
    """Returns the parts of a descriptor at (t, x), by the definition of each form."""
    values = expression.values
    match expression.form:
        case "":
            key = (str(values[0]), t, x)
            return [({key: 1.0}, 0.0) if available(*key) else None]
        case "Const":
            return [({}, float(values[0]))]
        case "Offset":
            t, x = t + values[0], x + (values[1] if len(values) > 1 else 0)
        case "Round":
            t -= t % values[0]
        case "ReplaceIndex":
            t, x = (values[1], x) if values[0] == "t" else (t, values[1])
        case "Switch":
            chosen = expression.operands[t % len(expression.operands)]
            return evaluate(chosen, t, x, available)
    operands = [evaluate(operand, t, x, available) for operand in expression.operands]
    if expression.form == "Append":
        return [part for operand in operands for part in operand]
    return [combine(expression, terms) for terms in zip(*operands, strict=True)]


def combine(expression: Expression, terms: Sequence[Value]) -> Value:
    """Returns the value of a form, given those of its operands."""
    first = terms[0]
    match expression.form:
        case "IfDefined":
            return ({}, 0.0) if first is None else first
        case "Failover":
            return terms[1] if first is None else first
        case "Sum" if any(term is None for term in terms):
            return None
        case "Sum":
            return added([term for term in terms if term is not None])
        case "Scale" if first is not None:
            factor = float(expression.values[0])
            return {key: factor * weight for key, weight in first[0].items()}, factor * first[1]
    return first


def added(terms: Sequence[tuple[dict, float]]) -> Value:
    """Returns the sum of values."""
    weights: dict[tuple[str, int, int], float] = {}
    for term, _ in terms:
        for key, weight in term.items():
            weights[key] = weights.get(key, 0.0) + weight
    return weights, sum(constant for _, constant in terms)


def constant_of(part: SumDescriptor) -> float:
    """Returns the sum of the constants of a descriptor if every leaf is available."""
    match part:
        case Const():
            return part.value
        case Failover():
            return constant_of(part.first)
    return sum(map(constant_of, part.operands))


def evaluate_normal_form(part: SumDescriptor, t: int, x: int, available: Availability) -> Value:
    """Returns the value of one part at (t, x), by the methods of the classes.

    They are asked about a second row, too, for which everything is available: all constants enter,
    but those that a Failover passes over.
    """
    indexes = make_indexes(0, t, x)
    cindexes = [leaf.map_to_input(indexes, NODE_INDEX)[0].tolist() for leaf in part.leaves]
    keys = [(NODES[node], t, x) for node, _, t, x in cindexes]
    leaf_available = np.array([(available(*key), True) for key in keys], bool).reshape(-1, 2)
    constants = part.constant_term(leaf_available)
    assert constants.dtype == np.float32
    assert constants[1] == constant_of(part)
    assert part.has_constant is ("Const(" in str(part))
    if not part.computable(leaf_available)[0]:
        assert not part.used(leaf_available)[:, 0].any()
        assert constants[0] == 0.0
        return None
    used = part.used(leaf_available)[:, 0]
    terms = [
        ({key: float(np.ravel(leaf.scale(indexes))[0])}, 0.0)
        for leaf, key, is_used in zip(part.leaves, keys, used, strict=True)
        if is_used
    ]
    return added([*terms, ({}, float(constants[0]))])


@given(descriptors())
def test_printing_and_parsing_are_inverse(text: str) -> None:
    """The canonical text gives the same descriptor, and the same text again."""
    descriptor = parse_descriptor(text)

    assert parse_descriptor(str(descriptor)) == descriptor
    assert str(parse_descriptor(str(descriptor))) == str(descriptor)


@given(
    descriptors(),
    st.lists(st.booleans(), min_size=61, max_size=61).map(Availability),
    st.integers(-7, 7),
    st.integers(-1, 1),
)
def test_the_normal_form_means_the_same(text: str, available: Availability, t: int, x: int) -> None:
    """At every index, the normal form reads the same rows with the same scales."""
    expression = parse_expression(text)
    descriptor = normalize(expression, text)

    expected = evaluate(expression, t, x, available)

    assert [evaluate_normal_form(part, t, x, available) for part in descriptor.parts] == expected


@given(
    descriptors(),
    st.lists(st.booleans(), min_size=5, max_size=20).map(Availability),
    st.lists(st.tuples(*[st.integers(-9, 9)] * 3), max_size=4),
)
def test_what_is_read_of_a_set(
    text: str, available: Availability, rows: list[tuple[int, int, int]]
) -> None:
    """A descriptor's answers for a set of cindexes follow from the definition of each form."""
    expression, descriptor = parse_expression(text), parse_descriptor(text)
    numbers = {name: 10 + number for number, name in enumerate(descriptor.node_names)}
    names = {number: name for name, number in numbers.items()}

    def contains(cindexes: np.ndarray) -> np.ndarray:
        found = [available(names[node], t, x) for node, _, t, x in cindexes.tolist()]
        return np.array(found, dtype=bool)

    indexes = as_indexes(rows)
    dependencies = descriptor.dependencies(indexes, numbers)
    computable, used = descriptor.is_computable(indexes, contains, numbers)

    assert dependencies.shape == (len(descriptor.leaves), len(rows), 4)
    assert used.shape == dependencies.shape[:2]
    for row, (n, t, x) in enumerate(rows):
        parts = evaluate(expression, t, x, available)
        assert computable[row] == (None not in parts)
        read = {key for part in parts if None not in parts for key in part[0]}
        cindexes = dependencies[used[:, row], row]
        assert {(names[node], t, x) for node, _, t, x in cindexes.tolist()} == read
        assert set(dependencies[:, row, 1].tolist()) <= {n}
        everything = evaluate(expression, t, x, Availability([True]))
        possible = {(names[node], t, x) for node, _, t, x in dependencies[:, row].tolist()}
        assert {key for part in everything for key in part[0]} <= possible


@given(descriptors(parts=1), st.lists(st.booleans(), min_size=5, max_size=20).map(Availability))
def test_a_part_answers_as_the_whole(text: str, available: Availability) -> None:
    """A descriptor of one part agrees with that part; nodes are numbered by first occurrence."""
    descriptor = parse_descriptor(text)
    (part,) = descriptor.parts
    indexes = make_indexes(3, np.arange(-2, 3))

    def contains(cindexes: np.ndarray) -> np.ndarray:
        found = [available(part.node_names[node], t, x) for node, _, t, x in cindexes.tolist()]
        return np.array(found, dtype=bool)

    assert np.array_equal(part.dependencies(indexes), descriptor.dependencies(indexes))
    answers = zip(
        part.is_computable(indexes, contains),
        descriptor.is_computable(indexes, contains),
        strict=True,
    )
    assert all(np.array_equal(one, other) for one, other in answers)


@given(descriptors(), st.integers(-20, 20))
def test_a_shift_by_the_modulus_changes_nothing(text: str, t: int) -> None:
    """Shifting the request by the modulus shifts every row without a fixed t."""
    descriptor = parse_descriptor(text)
    here, there = make_indexes(0, t), make_indexes(0, t + descriptor.modulus)

    for part in descriptor.parts:
        for leaf in part.leaves:
            before, after = (leaf.map_to_input(at, NODE_INDEX) for at in (here, there))
            shift = (after - before)[0].tolist()
            assert shift in ([0, 0, descriptor.modulus, 0], [0, 0, 0, 0])
            if "ReplaceIndex" not in text:
                assert shift[2] == descriptor.modulus
            assert leaf.scale(here) == leaf.scale(there)


@given(descriptors(), st.lists(st.tuples(*[st.integers(-9, 9)] * 3), max_size=6))
def test_rows_are_mapped_by_themselves(text: str, rows: list[tuple[int, int, int]]) -> None:
    """Many rows at once give the results of single rows, and n never changes."""
    indexes = np.array(rows, dtype=np.int32).reshape(-1, 3)

    for part in parse_descriptor(text).parts:
        for leaf in part.leaves:
            together = leaf.map_to_input(indexes, NODE_INDEX)
            assert together.dtype == np.int32
            assert (together[:, 1] == indexes[:, 0]).all()
            for row in range(len(indexes)):
                alone = leaf.map_to_input(indexes[row : row + 1], NODE_INDEX)
                assert (together[row] == alone[0]).all()
