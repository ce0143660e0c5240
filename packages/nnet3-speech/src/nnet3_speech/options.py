"""Options of Kaldi's tools as frozen values, read from config files such as `mfcc.conf`.

A class of options is a frozen attrs class. Its field `num_mel_bins` is the option
`--num-mel-bins`, its default is Kaldi's. `option` gives a field its range, and a name that is no
Python name. The field transformer `typed` makes values be of the types of the fields. What options
have to do with each other a class checks with `require`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

import attrs

from nnet3_speech.errors import SpeechError

Options = TypeVar("Options", bound=attrs.AttrsInstance)

_NAME = "nnet3_speech.option"
_TRUE = ("true", "t", "1", "")
_FALSE = ("false", "f", "0")
_LARGEST = 1e9
_BOUNDS = {
    "least": (operator.ge, "{:g} or more"),
    "above": (operator.gt, "more than {:g}"),
    "most": (operator.le, "at most {:g}"),
    "below": (operator.lt, "below {:g}"),
}


def option(default: Any, *, name: str = "", choices: tuple[str, ...] = (), **bounds: float) -> Any:
    """A field with a range, or with another name than its option.

    Args:
        default: The default. Where it is a float, values have to be finite and no larger than 1e9,
            also without bounds.
        name: The option, if that is no Python name, such as "endpoint.silence-phones".
        choices: The texts that it may be.
        bounds: Of a number: `least` or `above`, and `most` or `below`.
    """
    held = [(_BOUNDS[kind][0], bound) for kind, bound in bounds.items()]
    expected = ", ".join(_BOUNDS[kind][1].format(bound) for kind, bound in bounds.items())
    if bounds.keys() == {"least", "most"}:
        expected = f"{bounds['least']:g} to {bounds['most']:g}"

    def check(options: object, field: attrs.Attribute[Any], value: Any) -> None:
        if isinstance(default, float):
            is_finite = abs(value) <= _LARGEST
            require(options, field.name, is_finite, f"a finite number up to {_LARGEST:g}")
        if choices:
            require(options, field.name, value in choices, " or ".join(choices))
        is_inside = all(holds(value, bound) for holds, bound in held)
        require(options, field.name, is_inside, expected)

    return attrs.field(default=default, validator=check, metadata={_NAME: name} if name else {})


def require(options: object, name: str, holds: bool, expected: str) -> None:
    """Checks the value of a field.

    Args:
        options: The options.
        name: The field.
        holds: Whether the value is good.
        expected: What is expected, for the message.

    Raises:
        SpeechError: it is not good.
    """
    if not holds:
        value = getattr(options, name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        raise _refusal(name, text, expected)


def _refusal(name: str, text: str, expected: str) -> SpeechError:
    return SpeechError(f"--{name.replace('_', '-')}={text[:60]}: expected {expected}")


def typed(_: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """attrs' field transformer for classes of options: each value gets the type of its field.

    Numbers of NumPy become Python's, and integers become floats where a float is expected.

    Returns:
        The fields; they raise a SpeechError for a value of another type.
    """
    converter = attrs.Converter(_of_type, takes_field=True)
    return [field.evolve(converter=converter) for field in fields]


def _of_type(value: Any, field: attrs.Attribute[Any]) -> Any:
    is_bool = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
    kind: Any = field.type  # text, until somebody asks attrs to evaluate it
    make, expected, fits = {
        "bool": (bool, "true or false", is_bool),
        "int": (int, "an integer of 32 bits", not is_bool and _is_int32(value)),
        "float": (float, "a number", not is_bool and isinstance(value, Real)),
        "str": (str, "a text", isinstance(value, str)),
    }[getattr(kind, "__name__", kind)]
    if not fits:
        raise _refusal(field.name, repr(value), expected)
    return make(value)


def _is_int32(value: object) -> bool:
    return isinstance(value, Integral) and -(2**31) <= int(value) < 2**31


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
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
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
    from nnet3_descriptors.similar_names import hint  # not for the help of tools

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
    from nnet3_descriptors.files import parse_integer, parse_real

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
    if kind is int and not _is_int32(value):
        raise SpeechError(f"{where}: expected an integer of 32 bits, found {text[:60]!r}")
    return value
