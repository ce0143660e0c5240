"""The tokens of a descriptor: parentheses, commas, and words between them."""

import re
from typing import Final, NamedTuple

from nnet3_descriptors.errors import DescriptorSyntaxError

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

    def error(self, message: str, span: tuple[int, int]) -> DescriptorSyntaxError:
        """Returns an error that points at a part of the source."""
        return DescriptorSyntaxError(message, self.source, span)
