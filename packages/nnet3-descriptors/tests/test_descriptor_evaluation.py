"""Descriptors applied to arrays of indexes."""

import numpy as np
import pytest
from nnet3_descriptors import parse_descriptor
from nnet3_descriptors.descriptors import ForwardingDescriptor, SumDescriptor
from nnet3_descriptors.indexes import make_indexes

NODES = {"a": 0, "b": 1, "c": 2}


def forwarding(text: str) -> ForwardingDescriptor:
    """Returns the single forwarding descriptor in `text`."""
    (part,) = parse_descriptor(text).parts
    assert isinstance(part, ForwardingDescriptor)
    return part


def sum_descriptor(text: str) -> SumDescriptor:
    """Returns the single sum descriptor in `text`."""
    (part,) = parse_descriptor(text).parts
    return part


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Offset(a, 2)", (0, 2**31 - 1, 0)),
        ("Offset(Offset(a, -2147483647), 2147483647)", (0, 2**31 - 3, 0)),
        ("ReplaceIndex(Offset(a, 2147483647), t, 4)", (0, 2147483651, 0)),
        ("Offset(ReplaceIndex(a, t, 4), 2147483647)", (0, 4, 0)),
        ("Offset(a, 4)", (0, 2**31 + 1, 0)),
        ("Offset(a, 0, -2147483647)", (0, 2**31 - 3, 1 - 2**31)),
        ("Switch(a, Offset(b, 5))", (1, 2**31 + 2, 0)),
    ],
)
def test_rows_near_the_limits(text: str, expected: tuple[int, int, int]) -> None:
    """Nested descriptors may go beyond 32 bits; look-ups get whatever the whole gives."""
    cindexes = forwarding(text).map_unbounded(make_indexes(0, 2**31 - 3), NODES)

    assert tuple(cindexes[0, [0, 2, 3]].tolist()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 1.0),
        ("Offset(Scale(-0.5, a), 3)", -0.5),
        ("Switch(Scale(2, a), Scale(2, b))", 2.0),
    ],
)
def test_is_one_number_if_it_is_constant(text: str, expected: float) -> None:
    """A scale that all rows share is a number."""
    assert expected == forwarding(text).scale(make_indexes(0, [0, 1, 2]))


def test_is_an_array_if_it_varies() -> None:
    """A Switch of different scales gives one for each row, by the index of the row."""
    scale = forwarding("Offset(Switch(Scale(2, a), b), 1)").scale(make_indexes(0, [0, 1, 2]))

    assert isinstance(scale, np.ndarray)
    assert np.float32 == scale.dtype
    assert scale.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a", 0, 0)),
        ("Offset(Scale(3, b), -2, 1)", ("b", -2, 1)),
        ("Round(a, 3)", None),
        ("Offset(Switch(a, b), 1)", None),
        ("ReplaceIndex(a, t, 0)", None),
    ],
)
def test_tells_pure_offsets(text: str, expected: tuple[str, int, int] | None) -> None:
    """Only a fixed offset of a single node is a shift."""
    assert expected == forwarding(text).shift()


@pytest.mark.parametrize(
    ("text", "constant", "alone"),
    [
        ("Failover(a, Const(2, 3))", 0.0, 2.0),
        ("Failover(Sum(a, Const(2, 3)), Const(2, 3))", 2.0, 2.0),
        ("Sum(Sum(Const(16777216, 3), Const(1, 3)), Const(1, 3))", 16777216.0, 16777216.0),
        ("Sum(Const(16777216, 3), Const(1, 3), Const(1, 3))", 16777218.0, 16777218.0),
    ],
)
def test_constants_enter_with_their_terms(text: str, constant: float, alone: float) -> None:
    """The sum of the constants if all leaves are available, and if none is."""
    part = sum_descriptor(text)
    leaf_available = np.array([[True, False]] * len(part.leaves), bool).reshape(-1, 2)

    assert part.constant_term(leaf_available).tolist() == [constant, alone]
    assert part.has_constant is ("Const" in text)


@pytest.mark.parametrize(
    ("text", "modulus"),
    [
        ("a", 1),
        ("Offset(a, 5)", 1),
        ("Round(a, 3)", 3),
        ("Switch(a, b)", 2),
        ("Switch(a, Round(b, 3))", 6),
        ("Round(Switch(a, b), 3)", 6),
        ("ReplaceIndex(Round(a, 3), t, 0)", 1),
        ("ReplaceIndex(Round(a, 3), x, 0)", 3),
        ("Append(Round(a, 4), Sum(Round(b, 6), Const(1, 2)))", 12),
        ("Const(1, 2)", 1),
    ],
)
def test_modulus(text: str, modulus: int) -> None:
    """The modulus is the smallest shift of t that leaves all dependencies the same."""
    assert modulus == parse_descriptor(text).modulus
