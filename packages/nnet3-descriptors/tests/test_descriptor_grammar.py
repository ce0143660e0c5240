"""The grammar of descriptors: accepted texts, and errors for others."""

import pytest
from nnet3_descriptors import DescriptorSyntaxError, parse_descriptor
from nnet3_descriptors.descriptors.grammar import MAX_NESTING, parse_expression


class TestParseExpression:
    """Tests for `parse_expression`."""

    def test_keeps_what_was_written(self) -> None:
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

    def test_reads_a_part_of_a_text(self) -> None:
        """A span restricts the text; positions still refer to the whole text."""
        expression = parse_expression("input=Round(a, 3) dim=5", (6, 17))

        assert (expression.form, expression.span) == ("Round", (6, 17))

    @pytest.mark.parametrize("blanks", ["", " ", "\t", "  \n "])
    def test_blanks_do_not_matter(self, blanks: str) -> None:
        """Blanks may stand between any tokens, or nowhere."""
        words = ["Scale", "(", "-0.5e1", ",", "a.b-c_1", ")"]

        assert str(parse_descriptor(blanks.join(words))) == "Scale(-5, a.b-c_1)"


class TestErrors:
    """Tests for the messages and positions of `DescriptorSyntaxError`."""

    def test_cuts_long_lines(self) -> None:
        """A fault within a long line is shown with its surroundings only."""
        with pytest.raises(DescriptorSyntaxError) as caught:
            parse_descriptor(f"Append({'a, ' * 100}?, {'b, ' * 100}c)")

        shown, marker = str(caught.value).splitlines()[1:]
        assert len(shown) < 120
        assert shown[marker.index("^")] == "?"

    def test_accepts_the_limit(self) -> None:
        """The deepest allowed descriptors can be printed, parsed, compared and hashed."""
        deep = parse_descriptor("Round(" * (MAX_NESTING - 1) + "a" + ", 2)" * (MAX_NESTING - 1))
        wide = parse_descriptor("Sum(" + "a, " * (MAX_NESTING - 1) + "a)")

        for descriptor in (deep, wide):
            again = parse_descriptor(str(descriptor))
            assert descriptor == again
            assert hash(descriptor) == hash(again)
            assert descriptor.node_names == ("a",)
