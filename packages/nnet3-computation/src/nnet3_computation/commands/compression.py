"""The types of compression that CompressMatrix can name."""

from __future__ import annotations

from typing import Final

INT8, UINT8, INT16, UINT16, ONE_BIT = 1, 2, 3, 4, 5
"""Numbers of the types, as CompressMatrix has them."""

COMPRESSED_BITS: Final = {INT8: 8, UINT8: 8, INT16: 16, UINT16: 16, ONE_BIT: 1}
"""Bits that each type keeps of an element."""


def keeps_sign_only(compression_type: int, alpha: float) -> bool:
    """Returns whether the compressed matrix stores only which elements are positive."""
    return compression_type in (ONE_BIT, UINT8) and alpha == 0.0
