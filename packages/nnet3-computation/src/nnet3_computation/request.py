"""Requests to a network: the indexes that are given or wanted, and the derivatives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import attrs
import numpy as np
from nnet3_descriptors import Nnet3Error, check_limit
from nnet3_descriptors.indexes import INT32_MAX, LEAST_TIME, NO_TIME, IndexArray, N, T
from nnet3_descriptors.values import Serialized, is_integer, shown

from nnet3_computation.errors import RequestError
from nnet3_computation.indexes import first_duplicate, read_only_indexes


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
