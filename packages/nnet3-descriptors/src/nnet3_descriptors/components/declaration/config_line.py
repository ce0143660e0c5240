"""One line of a network's config text: a first word and `key=value` pairs."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np

from nnet3_descriptors import errors, similar_names
from nnet3_descriptors.indexes import INT32_MAX, INT32_MIN, is_int32
from nnet3_descriptors.text import is_valid_name, parse_integer, parse_real

T = TypeVar("T")

_FIRST_WORD: Final = re.compile(r"[^\s=]+(?=\s|$)")

_MISSPELT: Final = 0.8
"""The least similarity of a key to a missing key that makes it a misspelling."""


class ConfigValue(NamedTuple):
    """The value of a key, and the places of value and key in the source."""

    text: str
    span: tuple[int, int]
    key_span: tuple[int, int]


class ConfigLine:
    """The keys and values of a line; it remembers which of them were asked for.

    The getters take the name of a key and return its value. A key that is absent gives the
    default, and without a default an error.

    Attributes:
        first_word: The text before the first pair, such as "component-node"; may be "".
        values: The pairs, in the order of the line.
    """

    def __init__(
        self, source: str, span: tuple[int, int], first_word: str, values: Mapping[str, ConfigValue]
    ) -> None:
        self.source = source
        self.span = span
        self.first_word = first_word
        self.values = values
        self._used: set[str] = set()
        self._known: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, source: str, span: tuple[int, int] | None = None) -> Self:
        """Reads `[first-word] key=value key="quoted value" ...`.

        A value that is not quoted may hold blanks: it ends before the last word that precedes the
        next `=`. A key that is given again is ignored, as in Kaldi.

        Args:
            source: The text that holds the line, for error messages.
            span: The place of the line in the text; by default all of it.

        Raises:
            ConfigError: a word is not a `key=value` pair.
        """
        start, end = span if span is not None else (0, len(source))
        position = _skip_blanks(source, start, end)
        first_word = ""
        if word := _FIRST_WORD.match(source, position, end):
            first_word, position = word[0], _skip_blanks(source, word.end(), end)
        values: dict[str, ConfigValue] = {}
        while position < end:
            key, value, position = _parse_pair(source, position, end)
            values.setdefault(key, value)
            position = _skip_blanks(source, position, end)
        return cls(source, (start, end), first_word, values)

    def error(self, message: str, key: str | None = None) -> errors.ConfigError:
        """Returns an error that points at the value of `key`, or at the whole line.

        If `key` is the first word, it points at that.
        """
        start, end = self.span
        if key is not None and key in self.values:
            start, end = self.values[key].span
        elif key and key == self.first_word:
            end = start + len(key)
        return errors.ConfigError(message, self.source, (start, end))

    def may_have(self, keys: Iterable[str]) -> None:
        """Marks keys as valid, even if no getter asks for them."""
        self._known |= frozenset(keys)

    def finish(self, subject: str) -> None:
        """Raises a ConfigError if a key has not been asked for."""
        for key, value in self.values.items():
            if key not in self._used:
                message = f"{subject} has no key '{key}'" + similar_names.hint(
                    key, (self._used | self._known) - {key}
                )
                raise errors.ConfigError(message, self.source, value.key_span)

    def missing(self, key: str) -> errors.ConfigError:
        """Returns the error that a key is missing; it points at a misspelling of it, if any."""
        others = [other for other in self.values if other not in self._used | self._known]
        misspelt = similar_names.most_similar(key, others, cutoff=_MISSPELT)
        if misspelt is None:
            return self.error(f"'{key}' is missing", self.first_word)
        message = f"'{key}' is missing; is '{misspelt}' a misspelling of it?"
        return errors.ConfigError(message, self.source, self.values[misspelt].key_span)

    def has(self, key: str) -> bool:
        """Tells whether the line has the key."""
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        """Returns the value as text."""
        self._used.add(key)
        if key in self.values:
            return self.values[key].text
        if default is None:
            raise self.missing(key)
        return default

    def parsed(self, key: str, parse: Callable[[str], T], what: str) -> T:
        """Returns the value as a function gives it, whose ValueError says that it is no `what`."""
        text = self.text(key)
        try:
            return parse(text)
        except ValueError:
            raise self.error(f"'{key}' must be {what}, got '{text}'", key) from None

    def integer(self, key: str, default: int | None = None, *, minimum: int = INT32_MIN) -> int:
        """Returns the value as a 32-bit integer, not below `minimum`."""
        if default is not None and not self.has(key):
            return default
        value = self.parsed(key, parse_integer, "an integer")
        if not minimum <= value <= INT32_MAX:
            bound = f">= {minimum}" if value < minimum else "a 32-bit integer"
            raise self.error(f"'{key}' must be {bound}, got {value}", key)
        return value

    def real(
        self,
        key: str,
        default: float | None = None,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> float:
        """Returns the value as a number, rounded to float32, from `minimum` to `maximum`."""
        if default is not None and not self.has(key):
            return float(np.float32(default))
        number = self.parsed(key, parse_real, "a number")
        with np.errstate(over="ignore"):
            value = float(np.float32(number))
        text = self.values[key].text
        if math.isinf(value) and math.isfinite(number):
            raise self.error(f"'{key}' must be a number of single precision, got {text}", key)
        if minimum is not None and not value >= minimum:
            raise self.error(f"'{key}' must be >= {minimum:g}, got {text}", key)
        if maximum is not None and not value <= np.float32(maximum):
            raise self.error(f"'{key}' must be <= {maximum:g}, got {text}", key)
        return value

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """Returns the value as true or false; only its first letter counts, as in Kaldi."""
        if default is not None and not self.has(key):
            return default
        text = self.text(key)
        if text[:1].lower() not in ("t", "f"):
            raise self.error(f"'{key}' must be 'true' or 'false', got '{text}'", key)
        return text[:1].lower() == "t"

    def integers(self, key: str) -> tuple[int, ...]:
        """Returns the value as integers that are separated by ',' or ':'."""
        values = self.parsed(key, _integers, "a list of integers")
        if not all(map(is_int32, values)):
            raise self.error(f"'{key}' must hold 32-bit integers, got '{self.text(key)}'", key)
        return values


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(parse_integer, filter(str.strip, re.split("[,:]", text))))


def _skip_blanks(source: str, position: int, end: int) -> int:
    while position < end and source[position].isspace():
        position += 1
    return position


def _parse_pair(source: str, position: int, end: int) -> tuple[str, ConfigValue, int]:
    """Reads `key=value` at `position`; returns key, value and the position behind them."""
    equals = source.find("=", position, end)
    key = source[position : equals if equals >= 0 else end]
    if equals < 0 or not is_valid_name(key):
        word_end = position + len(key.split(maxsplit=1)[0]) if key.strip() else equals
        raise errors.ConfigError("expected 'key=value'", source, (position, word_end))
    start, key_span = equals + 1, (position, equals)
    if source[start : min(start + 1, end)] in ("'", '"'):
        closing = source.find(source[start], start + 1, end)
        if closing < 0:
            message = f"the quotation mark {source[start]} is not closed"
            raise errors.ConfigError(message, source, (start, end))
        text = source[start + 1 : closing]
        return key, ConfigValue(text, (start + 1, closing), key_span), closing + 1
    stop = end
    next_equals = source.find("=", start, end)
    if next_equals >= 0:
        blank = max(source.rfind(" ", start, next_equals), source.rfind("\t", start, next_equals))
        stop = blank if blank >= 0 else end
    text = source[start:stop].rstrip()
    return key, ConfigValue(text, (start, start + len(text)), key_span), start + len(text)
