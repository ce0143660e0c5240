"""Options of Kaldi's tools as frozen values, read from config files such as `mfcc.conf`.

A class of options is a frozen attrs class. Its field `num_mel_bins` is the option
`--num-mel-bins`; a name that is no Python name stands in the field's metadata, see `option`. Its
default is Kaldi's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs
from nnet3_descriptors.files import parse_integer, parse_real
from nnet3_descriptors.indexes import is_int32
from nnet3_descriptors.similar_names import hint

from nnet3_speech.errors import SpeechError

Options = TypeVar("Options", bound=attrs.AttrsInstance)

_NAME = "nnet3_speech.option"
_TRUE = ("true", "t", "1", "")
_FALSE = ("false", "f", "0")


def option(name: str, default: Any) -> Any:
    """A field whose option has another name: `option("endpoint.silence-phones", "")`."""
    return attrs.field(default=default, metadata={_NAME: name})


def read_lines(path: str | os.PathLike[str]) -> dict[str, str]:
    """The options of a config file, the last of each name, with "_" in names as "-".

    Args:
        path: A file with an option on each line, `--name=value`; "#" begins a comment. An option
            without a value is true.

    Raises:
        SpeechError: it cannot be read, or has a line that is no option.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpeechError(f"{os.fspath(path)}: the file cannot be read: {reason}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        name, _, value = line.partition("=")
        name = name.strip().replace("_", "-")
        if not name.startswith("--") or not name.strip("-"):
            raise SpeechError(
                f"{os.fspath(path)}, line {number}: expected an option, --name=value, found "
                f"{line[:60]!r}"
            )
        found[name.removeprefix("--")] = value.strip()
    return found


def read_options(cls: type[Options], path: str | os.PathLike[str]) -> Options:
    """The options of one class from a config file.

    Raises:
        SpeechError: see `read_lines` and `options_of`.
    """
    return options_of(cls, read_lines(path), os.fspath(path))


def options_of(
    cls: type[Options], values: Mapping[str, str], source: str, ignored: Iterable[str] = ()
) -> Options:
    """Options of one class from their texts.

    Args:
        cls: The class.
        values: The text of each option by its name, such as {"num-mel-bins": "40"}.
        source: Where they stand, for errors.
        ignored: Names that may stand there and have no effect.

    Raises:
        SpeechError: an option is unknown, or its text is no value of its type or out of range.
    """
    fields = {
        field.metadata.get(_NAME, field.name.replace("_", "-")): field
        for field in attrs.fields(attrs.resolve_types(cls))
    }
    ignored = frozenset(ignored)
    chosen = {}
    for name, text in values.items():
        if name in fields:
            chosen[fields[name].alias] = _value(fields[name].type, text, f"{source}: --{name}")
        elif name not in ignored:
            raise SpeechError(f"{source}: unknown option --{name}{hint(name, fields)}")
    try:
        return cls(**chosen)
    except SpeechError as error:  # a value is out of range
        raise SpeechError(f"{source}: {error}") from error


def _value(kind: type | None, text: str, where: str) -> Any:
    if kind is bool:
        if text in _TRUE + _FALSE:
            return text in _TRUE
        raise SpeechError(f"{where}: expected true or false, found {text[:60]!r}")
    if kind is str:
        return text
    parse, expected = (parse_integer, "an integer") if kind is int else (parse_real, "a number")
    try:
        value = parse(text)
    except ValueError:
        raise SpeechError(f"{where}: expected {expected}, found {text[:60]!r}") from None
    if kind is int and not is_int32(value):
        raise SpeechError(f"{where}: expected an integer of 32 bits, found {text[:60]!r}")
    return value
