"""Names and numbers in text, as Kaldi spells them."""

import re
from typing import Final

import numpy as np

TOKEN_CHARACTERS: Final = "printable text without spaces, ASCII, without \"'#= and no comment"
"""The definition of a token, for error messages; see `is_token`."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TOKEN = re.compile(r"(?!//)[!$-&(-<>-~]+")
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")


def is_valid_name(name: str) -> bool:
    """Tells whether `name` may name a node or component: letters, digits, '_', '-' and '.'.

    It has to begin with a letter or '_'.
    """
    return _NAME.fullmatch(name) is not None


def is_token(text: str) -> bool:
    """Tells whether `text` is a token that files and config lines store unchanged.

    Kaldi accepts any text without spaces. Here a token also has no characters that a config line
    would read in another way: quotation marks, "#", "=", and "//" at the beginning.
    """
    return _TOKEN.fullmatch(text) is not None


def parse_integer(text: str) -> int:
    """Returns the integer that digits spell, with a sign or not.

    Raises:
        ValueError: It is none, or spelt as only Python does, such as "1_000".
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"no integer: {text!r}")
    return int(text)


def parse_real(text: str) -> float:
    """Returns the number that a text spells as in C: decimal, or inf or nan.

    Raises:
        ValueError: It is none, or spelt as only Python does, such as "1_000.0".
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"no number: {text!r}")
    return float(text)


def format_float(value: float) -> str:
    """Returns a float32 in six significant digits, as C++ streams print it, if they suffice.

    If six digits do not identify the value, it gets more, so that a network keeps its values when
    it is written and read.
    """
    single = np.float32(value)
    for digits in range(6, 9):
        text = f"{single:.{digits}g}"
        if np.float32(text) == single:
            return text
    return f"{single:.9g}"
