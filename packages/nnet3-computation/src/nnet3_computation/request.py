"""Requests to a network: the indexes that are given or wanted, and the derivatives."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, ClassVar, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet3Error, check_limit
from nnet3_descriptors.indexes import (
    INT32_MAX,
    LEAST_TIME,
    NO_TIME,
    IndexArray,
    N,
    T,
    X,
    as_indexes,
    index_order,
)
from nnet3_descriptors.values import Serialized, frozen, is_integer, is_masked, shown

from nnet3_computation.errors import RequestError

BoolArray = npt.NDArray[np.bool_]


def read_only_indexes(values: npt.ArrayLike) -> IndexArray:
    """Returns `values` as a read-only (N, 3) array of indexes that nobody else can write to.

    Raises:
        Nnet3Error: the shape is not (N, 3), a value is not a 32-bit integer, or values are masked.
    """
    if is_masked(values):
        raise Nnet3Error("indexes must not be masked; filled() makes an array of them")
    array = as_indexes(values)
    # Whoever owns a read-only array can make it writeable again, so even such an array is copied.
    return frozen(np.array(array, dtype=np.int32, order="C"))


def first_duplicate(indexes: IndexArray) -> tuple[int, int, int] | None:
    """Returns the first index (in the order of indexes) that occurs more than once, or None."""
    if not _may_have_duplicates(indexes):
        return None
    ordered = indexes[index_order(indexes)]
    repeated = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    if not len(repeated):
        return None
    n, t, x = ordered[repeated[0]].tolist()
    return n, t, x


def _may_have_duplicates(indexes: IndexArray) -> bool:
    """Counts distinct indexes in a table of their bounding box, if that is small enough."""
    if len(indexes) < 2:
        return False
    columns = [indexes[:, column].astype(np.int64) for column in (T, X, N)]
    lowest = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, lowest, strict=True)]
    if sizes[0] * sizes[1] * sizes[2] > 16 * len(indexes) + 1024:
        return True
    t, x, n = (column - low for column, low in zip(columns, lowest, strict=True))
    seen = np.zeros(sizes[0] * sizes[1] * sizes[2], dtype=np.bool_)
    seen[(t * sizes[1] + x) * sizes[2] + n] = True
    return int(np.count_nonzero(seen)) < len(indexes)


@attrs.frozen(kw_only=True, cache_hash=True, repr=False)
class IoSpecification:
    """The rows of one input or output: the name of the node, and an Index for each row.

    Two specifications are equal when name, flag and rows (in order) are; equal ones have equal
    hashes.

    Attributes:
        name: the name of an input node, component node or output node.
        indexes: (rows, 3) int32, columns n, t, x; row i of the matrix that is given or returned
            has ``indexes[i]``. Any order; no index twice; n >= 0. A read-only copy of the argument.
        has_deriv: for an output, whether the derivative of the objective with respect to it will
            be given; for an input, whether the derivative with respect to it is wanted.

    Raises:
        RequestError: the name is empty, or there are no indexes, or they are masked, have another
            shape, repeat a row, or hold a negative n or the time value that marks padding.
    """

    name: str
    indexes: IndexArray = attrs.field(eq=np.ndarray.tobytes)
    has_deriv: bool = False

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise RequestError(f"expected the name of a node, found {self.name!r:.80}")
        _check_flag(f"'{self.name}'", "has_deriv", self.has_deriv)
        try:
            indexes = read_only_indexes(self.indexes)
        except Nnet3Error as error:
            raise RequestError(f"'{self.name}': {error}") from error
        _check_rows(self.name, indexes)
        object.__setattr__(self, "indexes", indexes)

    @classmethod
    def from_range(
        cls,
        name: str,
        t_start: int,
        t_end: int,
        n: int = 1,
        *,
        t_step: int = 1,
        has_deriv: bool = False,
    ) -> Self:
        """The rows t_start, t_start + t_step, ... < t_end of sequences 0 to n - 1, with x = 0.

        The rows of one sequence follow one another: n varies slowest.

        Raises:
            RequestError: there are no such rows; or `n` or `t_step` is not a positive integer, or a
                time no 32-bit integer.
        """
        for what, value, least, most in (
            ("t_start", t_start, LEAST_TIME, INT32_MAX),
            ("t_end", t_end, LEAST_TIME, INT32_MAX + 1),
            ("n", n, 1, INT32_MAX),
            ("t_step", t_step, 1, INT32_MAX),
        ):
            _check_integer(name, what, value, least, most)
        # Products and ends of NumPy's integers would wrap around.
        t_start, t_end, n, t_step = int(t_start), int(t_end), int(n), int(t_step)
        if t_end <= t_start:
            raise RequestError(
                f"'{name}': expected frames from t_start up to, but not with, t_end; found none "
                f"from {t_start} to {t_end}"
            )
        rows = n * len(range(t_start, t_end, t_step))
        check_limit("rows", rows, f"the rows of '{name}'", RequestError)
        times = np.arange(t_start, t_end, t_step)
        indexes = np.zeros((n, len(times), 3), dtype=np.int32)
        indexes[:, :, N] = np.arange(n)[:, None]
        indexes[:, :, T] = times
        return cls(name=name, indexes=indexes.reshape(-1, 3), has_deriv=has_deriv)

    def __reduce__(self) -> tuple[Any, ...]:
        # Each process has its own hashes, and unpickled arrays are not read-only.
        return _specification, (self.name, self.indexes, self.has_deriv)

    def __repr__(self) -> str:
        times = self.indexes[:, T]
        deriv = ", has_deriv=True" if self.has_deriv else ""
        return (
            f"IoSpecification(name={self.name!r}, <{len(self.indexes)} indexes, "
            f"t {times.min()} to {times.max()}>{deriv})"
        )


def _specification(name: str, indexes: IndexArray, has_deriv: bool) -> IoSpecification:
    """Returns the specification of these fields; pickles name this function."""
    return IoSpecification(name=name, indexes=indexes, has_deriv=has_deriv)


def _as_tuple(specifications: Iterable[IoSpecification]) -> tuple[IoSpecification, ...]:
    try:
        return tuple(specifications)
    except TypeError as error:
        found = type(specifications).__name__
        raise RequestError(f"expected a sequence of IoSpecification, found {found}") from error


@attrs.frozen(kw_only=True)
class ComputationRequest(Serialized):
    """A computation that is wanted from a network; hashable, and equal by content.

    Attributes:
        inputs: the given rows: of input nodes, or of component nodes (the state of a
            recurrent network, handed over from an earlier computation).
        outputs: the wanted rows, of output nodes.
        need_model_derivative: whether the derivative with respect to the model is wanted.
        store_component_stats: whether components record average activations and derivatives.

    Raises:
        RequestError: no input, no output, a name listed twice, a flag that is not a bool, or a
            derivative is wanted while no output has one.
    """

    FORMAT: ClassVar[str] = "nnet3.computation-request"
    VERSION: ClassVar[int] = 1

    inputs: tuple[IoSpecification, ...] = attrs.field(converter=_as_tuple)
    outputs: tuple[IoSpecification, ...] = attrs.field(converter=_as_tuple)
    need_model_derivative: bool = False
    store_component_stats: bool = False

    def __attrs_post_init__(self) -> None:
        for kind, specifications in (("input", self.inputs), ("output", self.outputs)):
            if not specifications:
                raise RequestError(f"the request has no {kind}s")
            for specification in specifications:
                if not isinstance(specification, IoSpecification):
                    raise RequestError(
                        f"expected an IoSpecification among the {kind}s, found {specification!r}"
                    )
        _check_names([io.name for io in (*self.inputs, *self.outputs)])
        for flag in ("need_model_derivative", "store_component_stats"):
            _check_flag("the request", flag, getattr(self, flag))
        if self.needs_derivatives and not any(io.has_deriv for io in self.outputs):
            raise RequestError(
                "derivatives are wanted (of the model or of an input), but no output has_deriv"
            )

    def _repr_html_(self) -> str | None:
        """The given and wanted rows, a line for each node, for notebooks."""
        return shown("request_html", self)

    @property
    def needs_derivatives(self) -> bool:
        """Whether the computation has a backward part."""
        return self.need_model_derivative or any(io.has_deriv for io in self.inputs)


def _check_integer(name: str, what: str, value: int, least: int, most: int) -> None:
    if not (is_integer(value) and least <= value <= most):
        raise RequestError(
            f"'{name}': expected {what} to be an integer from {least} to {most}, found {value!r}"
        )


def _check_flag(where: str, flag: str, value: object) -> None:
    if not isinstance(value, bool):
        raise RequestError(f"{where}: expected {flag} to be a bool, found {value!r}")


def _check_rows(name: str, indexes: IndexArray) -> None:
    if not len(indexes):
        raise RequestError(f"'{name}' has no indexes")
    if indexes[:, N].min() < 0:
        row = int(np.flatnonzero(indexes[:, N] < 0)[0])
        raise RequestError(f"row {row} of '{name}' has n = {indexes[row, N]}, expected n >= 0")
    if indexes[:, T].min() == NO_TIME:
        row = int(np.flatnonzero(indexes[:, T] == NO_TIME)[0])
        raise RequestError(f"row {row} of '{name}' has t = {NO_TIME}, which marks padding")
    duplicate = first_duplicate(indexes)
    if duplicate is not None:
        rows = np.flatnonzero((indexes == duplicate).all(axis=1)).tolist()
        raise RequestError(
            f"index (n, t, x) = {duplicate} of '{name}' is listed twice, in rows {rows[:2]}"
        )


def _check_names(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise RequestError(f"node '{name}' is listed more than once in the request")
        seen.add(name)


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
