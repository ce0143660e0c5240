"""The grammar of descriptors, and their normal form."""

import pytest
from nnet3_descriptors import DescriptorSyntaxError, parse_descriptor
from nnet3_descriptors.descriptors.grammar import MAX_NESTING, parse_expression


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("a", "a"),
        ("Append(a)", "a"),
        ("Append(a, Append(b, c))", "Append(a, b, c)"),
        ("Sum(a)", "a"),
        ("Sum(a, b, c, d)", "Sum(a, Sum(b, Sum(c, d)))"),
        ("Sum(Sum(a, b), c)", "Sum(Sum(a, b), c)"),
        ("Sum(Append(a, b), Append(c, d))", "Append(Sum(a, c), Sum(b, d))"),
        ("Failover(Append(a, b), Append(c, d))", "Append(Failover(a, c), Failover(b, d))"),
        ("IfDefined(Append(a, b))", "Append(IfDefined(a), IfDefined(b))"),
        ("Scale(1, a)", "a"),
        ("Scale(0.5, Scale(2, a))", "a"),
        ("Scale(2, Scale(-3, a))", "Scale(-6, a)"),
        ("Scale(2, Offset(a, 1))", "Offset(Scale(2, a), 1)"),
        ("Scale(2, Round(a, 3))", "Round(Scale(2, a), 3)"),
        ("Scale(2, ReplaceIndex(a, t, 0))", "ReplaceIndex(Scale(2, a), t, 0)"),
        ("Scale(2, Switch(a, Scale(3, b)))", "Switch(Scale(2, a), Scale(6, b))"),
        ("Scale(2, Sum(a, Const(1.5, 4)))", "Sum(Scale(2, a), Const(3, 4))"),
        ("Scale(2, Failover(a, b))", "Failover(Scale(2, a), Scale(2, b))"),
        ("Scale(2, IfDefined(a))", "IfDefined(Scale(2, a))"),
        (
            "Scale(0.5, Append(Offset(input, -1), Scale(-2.0, Offset(input, 1))))",
            "Append(Offset(Scale(0.5, input), -1), Offset(Scale(-1, input), 1))",
        ),
        ("Offset(a, 0)", "a"),
        ("Offset(a, 0, 0)", "a"),
        ("Offset(a, 0, -1)", "Offset(a, 0, -1)"),
        ("Offset(Offset(a, 1, 2), 3)", "Offset(a, 4, 2)"),
        ("Offset(Offset(a, 1), -1)", "a"),
        ("Offset(Round(a, 3), 1)", "Offset(Round(a, 3), 1)"),
        ("Offset(Sum(a, Offset(b, -1)), 1)", "Sum(Offset(a, 1), b)"),
        ("Offset(Sum(a, Const(1, 5)), 3)", "Sum(Offset(a, 3), Const(1, 5))"),
        ("Offset(Switch(a, b), 2)", "Offset(Switch(a, b), 2)"),
        ("Round(IfDefined(Offset(a, -1, 2)), 3)", "IfDefined(Round(Offset(a, -1, 2), 3))"),
        (
            "ReplaceIndex(Failover(a, b), x, 1)",
            "Failover(ReplaceIndex(a, x, 1), ReplaceIndex(b, x, 1))",
        ),
        ("Switch(a)", "Switch(a)"),
        ("Switch(Sum(a, b))", "Sum(Switch(a), Switch(b))"),
        ("Switch(Sum(a, b), Sum(c, d))", "Sum(Switch(a, c), Switch(b, d))"),
        ("Switch(IfDefined(a), IfDefined(b))", "IfDefined(Switch(a, b))"),
        ("Switch(Const(1, 2), Const(1, 2))", "Const(1, 2)"),
        ("Failover(a, Const(0, 3))", "Failover(a, Const(0, 3))"),
    ],
)
def test_normal_form(written: str, normal: str) -> None:
    """Each rule gives the normal form that Kaldi prints, or one that follows from Kaldi's rules."""
    assert normal == str(parse_descriptor(written))
    assert parse_descriptor(written) == parse_descriptor(normal)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Scale(0.66, a)", "Scale(0.66, a)"),
        ("Scale(1e-7, a)", "Scale(1e-07, a)"),
        ("Scale(1234567, a)", "Scale(1234567, a)"),
        ("Scale(1000000, a)", "Scale(1e+06, a)"),
        ("Scale(0.70710678, a)", "Scale(0.70710677, a)"),
        ("Const(-0, 3)", "Const(-0, 3)"),
        ("Const(1.50, 3)", "Const(1.5, 3)"),
    ],
)
def test_prints_numbers_as_kaldi_but_never_loses_digits(text: str, printed: str) -> None:
    """Numbers have Kaldi's six digits, or more if six do not restore the value."""
    assert printed == str(parse_descriptor(text))
    assert parse_descriptor(text) == parse_descriptor(printed)


def test_keeps_what_was_written() -> None:
    """Operands, values and spans of the text are those of the text."""
    expression = parse_expression("Offset( Sum(a, b) , -1, +2)")

    assert expression.form == "Offset"
    assert expression.values == (-1, 2)
    assert expression.span == (0, 27)
    (total,) = expression.operands
    assert (total.form, total.span) == ("Sum", (8, 17))
    assert [
        (reference.values[0], reference.span) for reference in expression.node_references()
    ] == [("a", (12, 13)), ("b", (15, 16))]


def test_reads_a_part_of_a_text() -> None:
    """A span restricts the text; positions still refer to the whole text."""
    expression = parse_expression("input=Round(a, 3) dim=5", (6, 17))

    assert (expression.form, expression.span) == ("Round", (6, 17))


@pytest.mark.parametrize("blanks", ["", " ", "\t", "  \n "])
def test_blanks_do_not_matter(blanks: str) -> None:
    """Blanks may stand between any tokens, or nowhere."""
    words = ["Scale", "(", "-0.5e1", ",", "a.b-c_1", ")"]

    assert str(parse_descriptor(blanks.join(words))) == "Scale(-5, a.b-c_1)"


def test_cuts_long_lines() -> None:
    """A fault within a long line is shown with its surroundings only."""
    with pytest.raises(DescriptorSyntaxError) as caught:
        parse_descriptor(f"Append({'a, ' * 100}?, {'b, ' * 100}c)")

    shown, marker = str(caught.value).splitlines()[1:]
    assert len(shown) < 120
    assert shown[marker.index("^")] == "?"


def test_accepts_the_limit() -> None:
    """The deepest allowed descriptors can be printed, parsed, compared and hashed."""
    deep = parse_descriptor("Round(" * (MAX_NESTING - 1) + "a" + ", 2)" * (MAX_NESTING - 1))
    wide = parse_descriptor("Sum(" + "a, " * (MAX_NESTING - 1) + "a)")

    for descriptor in (deep, wide):
        again = parse_descriptor(str(descriptor))
        assert descriptor == again
        assert hash(descriptor) == hash(again)
        assert descriptor.node_names == ("a",)
