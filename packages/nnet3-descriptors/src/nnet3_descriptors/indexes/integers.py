"""The integers that Kaldi's files and config lines hold: 32 bits with a sign."""

from typing import Final

import attrs

from nnet3_descriptors.errors import NetworkError

INT32_MIN: Final = -(2**31)
"""The smallest int32."""
INT32_MAX: Final = 2**31 - 1
"""The largest int32."""


def is_int32(value: object) -> bool:
    """Tells whether a value is an integer (and no bool) that fits in 32 bits."""
    return type(value) is int and INT32_MIN <= value <= INT32_MAX


def check_int32(_: object, attribute: "attrs.Attribute[int]", value: int) -> None:
    """Validates a field of an attrs class; see `require_int32`."""
    require_int32(f"'{attribute.name}'", value)


def require_int32(what: str, value: object) -> None:
    """Raises a NetworkError that begins with `what` unless the value is a 32-bit integer."""
    if not is_int32(value):
        wanted = "fit in 32 bits" if type(value) is int else "be an integer"
        raise NetworkError(f"{what} must {wanted} (got {value!r})")
