"""The fingerprint of a request, by which readers tell computations of different requests apart."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, Self

import attrs
import numpy as np
from nnet3_descriptors.indexes import IndexArray

from nnet3_computation.request import ComputationRequest, IoSpecification


@attrs.frozen(kw_only=True, slots=False)
class IoFingerprint:
    """The rows of one node that a request gives or wants.

    `of` returns a fingerprint that computes its digest on first use. Most fingerprints are only
    compared with another fingerprint of the same request; comparing the indexes is enough for that.

    Attributes:
        name: The name of the node.
        rows: The number of rows.
        has_deriv: As in the request.
        indexes: The first 16 hexadecimal digits of the SHA-256 of the indexes: little-endian int32,
            n, t, x of the first row, then of the second.
    """

    name: str
    rows: int
    has_deriv: bool
    indexes: str

    @classmethod
    def of(cls, io: IoSpecification) -> Self:
        """Returns the fingerprint of an input or output."""
        fingerprint = cls.__new__(cls)
        vars(fingerprint).update(
            name=io.name, rows=len(io.indexes), has_deriv=io.has_deriv, _rows_of=io.indexes
        )
        return fingerprint

    def __getattr__(self, name: str) -> Any:
        """Computes the digest, the only field that may be missing."""
        rows: IndexArray | None = vars(self).get("_rows_of")
        if name != "indexes" or rows is None:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        import hashlib  # takes a while to import

        data = rows.astype("<i4", copy=False).tobytes()
        digest = vars(self)["indexes"] = hashlib.sha256(data).hexdigest()[:16]
        return digest

    def _has_rows_of(self, other: Self) -> bool:
        """Compares the indexes themselves if both sides have them, else their digests."""
        mine, theirs = vars(self).get("_rows_of"), vars(other).get("_rows_of")
        if mine is None or theirs is None:
            return self.indexes == other.indexes
        return mine is theirs or np.array_equal(mine, theirs)

    def difference(self, other: Self) -> str | None:
        """Returns the first difference of another fingerprint, or None."""
        for what, expected, found in (
            ("name", self.name, other.name),
            ("number of rows", self.rows, other.rows),
            ("has_deriv", self.has_deriv, other.has_deriv),
        ):
            if expected != found:
                return f"it was made with {what} {expected}, this request has {found}"
        return None if self._has_rows_of(other) else "its rows have other indexes (n, t, x)"


@attrs.frozen(kw_only=True)
class RequestFingerprint:
    """Digests of a request, which tell it from other requests.

    Attributes:
        inputs: The given rows.
        outputs: The wanted rows.
        need_model_derivative: As in the request.
        store_component_stats: As in the request.
    """

    inputs: tuple[IoFingerprint, ...]
    outputs: tuple[IoFingerprint, ...]
    need_model_derivative: bool
    store_component_stats: bool

    @classmethod
    def of(cls, request: ComputationRequest) -> Self:
        """Returns the fingerprint of a request."""
        return cls(
            inputs=tuple(map(IoFingerprint.of, request.inputs)),
            outputs=tuple(map(IoFingerprint.of, request.outputs)),
            need_model_derivative=request.need_model_derivative,
            store_component_stats=request.store_component_stats,
        )

    def difference(self, other: RequestFingerprint) -> str | None:
        """Returns how another request differs from that of this fingerprint, or None."""
        for kind, expected, found in (
            ("input", self.inputs, other.inputs),
            ("output", self.outputs, other.outputs),
        ):
            fault = _first_difference(kind, expected, found)
            if fault is not None:
                return fault
        for flag in ("need_model_derivative", "store_component_stats"):
            made, asked = getattr(self, flag), getattr(other, flag)
            if made != asked:
                return f"it was made with {flag} = {made}, this request has {asked}"
        return None


def _first_difference(
    kind: str, expected: Iterable[IoFingerprint], found: Iterable[IoFingerprint]
) -> str | None:
    for one, other in zip_longest(expected, found):
        if one is None:
            return f"it was made without {kind} '{other.name}'"
        if other is None:
            return f"it was made with {kind} '{one.name}', which this request lacks"
        fault = one.difference(other)
        if fault is not None:
            return f"{kind} '{one.name}': {fault}"
    return None
