"""The grammar of descriptors as users write them, and its parser.

    descriptor = node-name
               | "Append" "(" descriptor { "," descriptor } ")"
               | "Sum" "(" descriptor { "," descriptor } ")"
               | "Failover" "(" descriptor "," descriptor ")"
               | "IfDefined" "(" descriptor ")"
               | "Offset" "(" descriptor "," t-offset [ "," x-offset ] ")"
               | "Switch" "(" descriptor { "," descriptor } ")"
               | "Round" "(" descriptor "," t-modulus ")"
               | "ReplaceIndex" "(" descriptor "," ( "t" | "x" ) "," value ")"
               | "Scale" "(" factor "," descriptor ")"
               | "Const" "(" value "," dimension ")"

The forms nest freely here; `normalize` gives the nesting its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from nnet3_descriptors import errors, indexes, similar_names
from nnet3_descriptors.text import is_valid_name

_TOKEN: Final = re.compile(r"[(),]|[^\s(),]+")

END: Final = ""
"""Text of the token behind the last one."""


class Token(NamedTuple):
    """A piece of the source.

    Attributes:
        text: The characters; `END` behind the last token.
        span: Start and end in the source.
    """

    text: str
    span: tuple[int, int]

    def describe(self) -> str:
        """Returns the name of the token in error messages."""
        return "the end" if self.text == END else f"'{self.text}'"


class Tokenizer:
    """Reads the tokens of a part of a text, one after the other."""

    def __init__(self, source: str, span: tuple[int, int] | None = None) -> None:
        """Starts before the first token.

        Args:
            source: The text, which error messages show.
            span: The part of it to read; by default all.
        """
        self.source = source
        start, self._end = span if span is not None else (0, len(source))
        self.next = self._scan(start)

    def _scan(self, position: int) -> Token:
        match = _TOKEN.search(self.source, position, self._end)
        if match is None:
            return Token(END, (self._end, self._end))
        return Token(match[0], match.span())

    def advance(self) -> Token:
        """Returns the next token and moves past it."""
        token = self.next
        self.next = self._scan(token.span[1])
        return token

    def expect(self, text: str, *, expected: str) -> Token:
        """Moves past the next token, which must have this text.

        Args:
            text: The expected text.
            expected: The words for it in the error message.

        Raises:
            DescriptorSyntaxError: The next token is another.
        """
        if self.next.text != text:
            raise self.error(f"expected {expected}, got {self.next.describe()}", self.next.span)
        return self.advance()

    def error(self, message: str, span: tuple[int, int]) -> errors.DescriptorSyntaxError:
        """Returns an error that points at a part of the source."""
        return errors.DescriptorSyntaxError(message, self.source, span)


MAX_NESTING: Final = 200
"""The deepest nesting of descriptors, both as written and in normal form."""

MAX_LENGTH: Final = 100_000
"""The most characters of a descriptor."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


# The kinds of arguments that one place between the parentheses of a form accepts.
DESCRIPTOR: Final = "a descriptor"
NUMBER: Final = "a number"
INTEGER: Final = "an integer"
POSITIVE: Final = "a positive integer"
VARIABLE: Final = "'t' or 'x'"


class Form(NamedTuple):
    """The arguments of one of the ten forms.

    Attributes:
        arguments: The places between the parentheses.
        repeats: The last argument may be repeated.
        optional: The number of last arguments that may be left out.
    """

    arguments: tuple[str, ...]
    repeats: bool = False
    optional: int = 0


FORMS: Final = {
    "Append": Form((DESCRIPTOR,), repeats=True),
    "Sum": Form((DESCRIPTOR,), repeats=True),
    "Failover": Form((DESCRIPTOR, DESCRIPTOR)),
    "IfDefined": Form((DESCRIPTOR,)),
    "Offset": Form((DESCRIPTOR, INTEGER, INTEGER), optional=1),
    "Switch": Form((DESCRIPTOR,), repeats=True),
    "Round": Form((DESCRIPTOR, POSITIVE)),
    "ReplaceIndex": Form((DESCRIPTOR, VARIABLE, INTEGER)),
    "Scale": Form((NUMBER, DESCRIPTOR)),
    "Const": Form((NUMBER, POSITIVE)),
}


class Expression(NamedTuple):
    """A descriptor as it was written.

    Attributes:
        form: Name of the form; "" for a node name.
        span: Its place in the source.
        operands: The arguments that are descriptors, in order.
        values: The other arguments, in order; the name of the node for a node name.
    """

    form: str
    span: tuple[int, int]
    operands: tuple[Expression, ...] = ()
    values: tuple[int | float | str, ...] = ()

    def node_references(self) -> Iterator[Expression]:
        """Returns the node names in this, from left to right."""
        if self.form == "":
            yield self
        for operand in self.operands:
            yield from operand.node_references()


def parse_expression(source: str, span: tuple[int, int] | None = None) -> Expression:
    """Parses a descriptor without bringing it to normal form.

    Args:
        source: The text that holds the descriptor.
        span: The part of it that is the descriptor; by default all.

    Raises:
        DescriptorSyntaxError: The text does not follow the grammar.
    """
    start, end = span if span is not None else (0, len(source))
    if end - start > MAX_LENGTH:
        message = f"descriptors may have at most {MAX_LENGTH} characters (got {end - start})"
        raise errors.DescriptorSyntaxError(message, source, (start, end))
    tokens = Tokenizer(source, (start, end))
    expression = _parse_descriptor(tokens, depth=1)
    tokens.expect(END, expected="the end of the descriptor")
    return expression


def _parse_descriptor(tokens: Tokenizer, depth: int) -> Expression:
    """Parses `node-name | form "(" argument { "," argument } ")"`."""
    name = tokens.advance()
    if depth > MAX_NESTING:
        raise tokens.error(f"descriptors may nest at most {MAX_NESTING} deep", name.span)
    if tokens.next.text != "(":
        return _node_name(tokens, name)
    form = FORMS.get(name.text)
    if form is None:
        raise tokens.error(
            f"{name.describe()} is no form of descriptor; the forms are {', '.join(FORMS)}"
            + similar_names.hint(name.text, FORMS)
            if is_valid_name(name.text)
            else f"expected a descriptor, got {name.describe()}",
            name.span,
        )
    tokens.advance()
    operands: list[Expression] = []
    values: list[int | float | str] = []
    for number in range(len(tokens.source)):
        argument = form.arguments[min(number, len(form.arguments) - 1)]
        if argument == DESCRIPTOR:
            operands.append(_parse_descriptor(tokens, depth + 1))
        else:
            values.append(_parse_value(tokens, argument, name.text))
        if not _another_argument_follows(tokens, form, name.text, number + 1):
            break
    closing = tokens.expect(")", expected=f"')' after the arguments of {name.text}()")
    return Expression(
        form=name.text,
        operands=tuple(operands),
        values=tuple(values),
        span=(name.span[0], closing.span[1]),
    )


def _another_argument_follows(tokens: Tokenizer, form: Form, name: str, parsed: int) -> bool:
    """Goes past a comma if there is one; tells whether there was.

    Raises:
        DescriptorSyntaxError: There must be one, or what stands there is neither "," nor ")".
    """
    missing = len(form.arguments) - form.optional - parsed
    if missing > 0:
        tokens.expect(",", expected=f"',' and {form.arguments[parsed]} in {name}()")
        return True
    if tokens.next.text == "," and (form.repeats or parsed < len(form.arguments)):
        tokens.advance()
        return True
    if form.repeats and tokens.next.text != ")":
        tokens.expect(")", expected=f"',' or ')' in {name}()")
    return False


def _node_name(tokens: Tokenizer, name: Token) -> Expression:
    if name.text in FORMS:
        tokens.expect("(", expected=f"'(' after '{name.text}'")
    if not is_valid_name(name.text):
        raise tokens.error(f"expected a descriptor, got {name.describe()}", name.span)
    return Expression(form="", values=(name.text,), span=name.span)


def _parse_value(tokens: Tokenizer, argument: str, form: str) -> int | float | str:
    """Parses an argument that is not a descriptor."""
    token = tokens.advance()
    value = _value_of(token.text, argument)
    if value is None:
        raise tokens.error(f"expected {argument} in {form}(), got {token.describe()}", token.span)
    return value


def _value_of(text: str, argument: str) -> int | float | str | None:
    """Returns the value that `text` spells, or None if it is none of that kind."""
    if argument == VARIABLE:
        return text if text in ("t", "x") else None
    if argument == NUMBER:
        return float(text) if _NUMBER.fullmatch(text) else None
    if not _INTEGER.fullmatch(text) or len(text) > len(str(indexes.INT32_MIN)):
        return None
    value = int(text)
    least = 1 if argument == POSITIVE else indexes.INT32_MIN
    return value if least <= value <= indexes.INT32_MAX else None
