"""The grammar of descriptors: accepted texts, and errors for others."""

import pytest
from nnet3_descriptors import DescriptorSyntaxError, parse_descriptor
from nnet3_descriptors.descriptors.grammar import MAX_LENGTH, MAX_NESTING, parse_expression


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

    @pytest.mark.parametrize(
        ("text", "message", "span"),
        [
            ("", "expected a descriptor, got the end", (0, 0)),
            ("(a)", "expected a descriptor, got '('", (0, 1)),
            ("a b", "expected the end of the descriptor, got 'b'", (2, 3)),
            ("3a", "expected a descriptor, got '3a'", (0, 2)),
            ("Append", "expected '(' after 'Append', got the end", (6, 6)),
            ("Append()", "expected a descriptor, got ')'", (7, 8)),
            ("Append(a", "expected ',' or ')' in Append(), got the end", (8, 8)),
            ("Sum(a b)", "expected ',' or ')' in Sum(), got 'b'", (6, 7)),
            ("Sum(a,)", "expected a descriptor, got ')'", (6, 7)),
            ("Failover(a)", "expected ',' and a descriptor in Failover(), got ')'", (10, 11)),
            (
                "IfDefined(a, b)",
                "expected ')' after the arguments of IfDefined(), got ','",
                (11, 12),
            ),
            ("Offset(a)", "expected ',' and an integer in Offset(), got ')'", (8, 9)),
            ("Offset(a, 1.5)", "expected an integer in Offset(), got '1.5'", (10, 13)),
            (
                "Offset(a, 2147483648)",
                "expected an integer in Offset(), got '2147483648'",
                (10, 20),
            ),
            (
                "Offset(a, 1, 2, 3)",
                "expected ')' after the arguments of Offset(), got ','",
                (14, 15),
            ),
            ("Round(a, 0)", "expected a positive integer in Round(), got '0'", (9, 10)),
            ("ReplaceIndex(a, n, 0)", "expected 't' or 'x' in ReplaceIndex(), got 'n'", (16, 17)),
            ("Scale(a, 2)", "expected a number in Scale(), got 'a'", (6, 7)),
            ("Scale(nan, a)", "expected a number in Scale(), got 'nan'", (6, 9)),
            ("Const(1, -2)", "expected a positive integer in Const(), got '-2'", (9, 11)),
        ],
    )
    def test_names_what_was_expected_and_found(
        self, text: str, message: str, span: tuple[int, int]
    ) -> None:
        """The error says what was expected, what was found, and where."""
        with pytest.raises(DescriptorSyntaxError) as caught:
            parse_descriptor(text)

        assert message == caught.value.message
        assert span == caught.value.span
        assert text == caught.value.source

    def test_lists_the_forms_for_an_unknown_one(self) -> None:
        """An unknown form gives an error that lists the forms."""
        with pytest.raises(
            DescriptorSyntaxError, match=r"'Splice' is no form of descriptor; .* Sum"
        ):
            parse_descriptor("Append(a, Splice(b))")

    def test_marks_the_place_below_the_line(self) -> None:
        """The printed error shows the text and a marker below the fault."""
        with pytest.raises(DescriptorSyntaxError) as caught:
            parse_descriptor("Offset(a, 1.5)")

        assert str(caught.value).splitlines()[1:] == [
            "    Offset(a, 1.5)",
            "              ^^^",
        ]

    def test_cuts_long_lines(self) -> None:
        """A fault within a long line is shown with its surroundings only."""
        with pytest.raises(DescriptorSyntaxError) as caught:
            parse_descriptor(f"Append({'a, ' * 100}?, {'b, ' * 100}c)")

        shown, marker = str(caught.value).splitlines()[1:]
        assert len(shown) < 120
        assert shown[marker.index("^")] == "?"

    @pytest.mark.parametrize(
        "text",
        [
            "Sum(" * 20_000,
            "Sum(" * 19_000 + "a" + ")" * 19_000,
            "Round(" * (MAX_NESTING + 1) + "a" + ", 2)" * (MAX_NESTING + 1),
            "Sum(" + "a, " * (MAX_NESTING + 1) + "a)",
            "(" * 100_000,
            "Append(" + "a," * MAX_LENGTH + "a)",
            "Round(" * 190 + "Append(" + "a," * 40_000 + "a)" + ", 2)" * 190,
        ],
        ids=["open", "deep", "forwarding", "sum", "parentheses", "long", "growing"],
    )
    def test_refuses_what_is_out_of_proportion(self, text: str) -> None:
        """Excessive nesting, length or growth gives one clear error."""
        with pytest.raises(
            DescriptorSyntaxError, match=r"at most|more than|too large|expected a descriptor"
        ):
            parse_descriptor(text)

    def test_accepts_the_limit(self) -> None:
        """The deepest allowed descriptors can be printed, parsed, compared and hashed."""
        deep = parse_descriptor("Round(" * (MAX_NESTING - 1) + "a" + ", 2)" * (MAX_NESTING - 1))
        wide = parse_descriptor("Sum(" + "a, " * (MAX_NESTING - 1) + "a)")

        for descriptor in (deep, wide):
            again = parse_descriptor(str(descriptor))
            assert descriptor == again
            assert hash(descriptor) == hash(again)
            assert descriptor.node_names == ("a",)
