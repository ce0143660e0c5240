"""The declaration of the fields of component classes, which serves all uses.

A declaration such as `input_dim: int = integer(minimum=1)` gives the name of the field in files
(`<InputDim>`) and in config lines (`input-dim`), and tells how to read, write, check and show it.
The order of the declarations is the order of the tokens in Kaldi's files.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import config_line, kinds
from nnet3_descriptors.errors import NetworkError

Array = NDArray[np.float32]
Written = Literal["always", "unless default"] | Callable[[Any], bool]
Shown = Literal["always", "unless default", "never"] | Callable[[Any], bool]
Shape = tuple[str | int, ...]

_SPEC: Final = "nnet3"
_REQUIRED: Final = object()


class Declared(Protocol):
    """An instance of a class whose fields are declared: a component."""

    type: ClassVar[str]
    FIELDS: ClassVar[tuple[FieldSpec, ...]]


@attrs.frozen(kw_only=True, eq=False)
class FieldSpec:
    """The declaration of one field of a class.

    Attributes:
        name: Name of the attribute.
        kind: Its type in files and config lines.
        token: Words that stand before the value in a file; "" if it follows the value of the
            field before it directly.
        old_tokens: The tokens of older files in its place.
        config: Key in config lines; None if a config line does not give the value.
        unset_below: A config value below this counts as not given.
        default: Default of a config line; a callable gets the component; or _REQUIRED.
        absent: Value where a file lacks the token: a value, or a function of the fields read
            before it; or _REQUIRED.
        written: The condition for writing the token.
        shape: For arrays, names of the attributes that give rows and columns.
        may_be_empty: Whether an empty array is valid, too.
        parameter: Training changes it.
        shown: The condition for showing it in `info`.
        label: Name by which `info` shows it.
        show: The format of the value in `info`.
        minimum: Least value.
        above: An exclusive lower bound.
        maximum: Greatest value.
    """

    name: str
    kind: kinds.Kind
    token: str
    old_tokens: tuple[str, ...]
    config: str | None
    unset_below: float | None
    default: Any
    absent: Any
    written: Written
    shape: Shape
    may_be_empty: bool
    parameter: bool
    shown: Shown
    label: str
    show: Callable[[str, Any], str] | None
    minimum: float | None
    above: float | None
    maximum: float | None

    @property
    def optional(self) -> bool:
        """Whether files may lack the token."""
        return self.absent is not _REQUIRED or self.written != "always"

    @property
    def has_absent(self) -> bool:
        """Whether the declaration says what a missing token means."""
        return self.absent is not _REQUIRED

    def starts_with(self, token: str) -> bool:
        """Tells whether the field begins with that token in a new or an old file."""
        return self.token.partition(" ")[0] == token != "" or token in self.old_tokens

    def default_for(self, component: Declared) -> Any:
        """Returns the default value of the field in that component."""
        return self.default(component) if callable(self.default) else self.default

    def holds(self, when: Written | Shown, component: Declared) -> bool:
        """Tells whether the field is written, or shown, for that component."""
        if callable(when):
            return bool(when(component))
        if when == "unless default":
            return bool(getattr(component, self.name) != self.default_for(component))
        return when == "always"

    def check(self, component: Declared) -> None:
        """Raises NetworkError unless the value has the type, shape and range declared."""
        value = getattr(component, self.name)
        where = f"{component.type}: '{self.name}'"
        self.kind.check(value, where)
        self.check_range(value, where)
        if self.shape and not (self.may_be_empty and value.size == 0):
            wanted = tuple(
                getattr(component, size) if isinstance(size, str) else size for size in self.shape
            )
            if value.shape != wanted:
                raise NetworkError(f"{where} must have the shape {wanted}, got {value.shape}")

    def check_range(self, value: Any, where: str) -> None:
        """Raises NetworkError unless the value is in the range that `minimum` and so on declare."""
        if self.minimum is not None and not value >= self.minimum:
            raise NetworkError(f"{where} must be >= {self.minimum:g}, got {_number(value)}")
        if self.above is not None and not value > self.above:
            raise NetworkError(f"{where} must be > {self.above:g}, got {_number(value)}")
        if self.maximum is not None and not value <= self.maximum:
            raise NetworkError(f"{where} must be <= {self.maximum:g}, got {_number(value)}")

    def take(self, config: config_line.ConfigLine, values: dict[str, Any]) -> None:
        """Puts the value that a config line gives, if it gives one, into `values`."""
        assert self.config is not None
        if not config.has(self.config):
            if self.default is _REQUIRED:
                raise config.missing(self.config)
            return
        value = self.kind.from_config(config, self.config)
        if self.unset_below is not None and value < self.unset_below:
            return
        values[self.name] = value


def field_specs(cls: type) -> tuple[FieldSpec, ...]:
    """Returns the declarations of the fields of a component class, in file order."""
    return tuple(
        _named(attribute.metadata[_SPEC], attribute.name) for attribute in attrs.fields(cls)
    )


def _number(value: float) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    # A number beyond the range of float32, such as 1e300, becomes infinite.
    return f"{text} in single precision" if math.isinf(value) else text


@functools.cache
def _named(declared: FieldSpec, name: str) -> FieldSpec:
    """Returns a declaration, completed with defaults that follow from the name of the field."""
    words = name.replace("_", "-")
    return attrs.evolve(
        declared,
        name=name,
        token=f"<{_camel_case(name)}>" if declared.token == "auto" else declared.token,
        config=words if declared.config == "auto" else declared.config,
        label=words if declared.label == "auto" else declared.label,
    )


def _camel_case(name: str) -> str:
    return re.sub(r"(?:^|_)([a-z0-9])", lambda match: match[1].upper(), name)


def declare(
    kind: kinds.Kind,
    *,
    default: Any = _REQUIRED,
    token: str = "auto",
    old_tokens: tuple[str, ...] = (),
    config: str | None = "auto",
    unset_below: float | None = None,
    absent: Any = _REQUIRED,
    written: Written = "always",
    shape: Shape = (),
    may_be_empty: bool = False,
    parameter: bool = False,
    info: str | None = "auto",
    shown: Shown | None = None,
    show: Callable[[str, Any], str] | None = None,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> Any:
    """Declares a field; see FieldSpec for the arguments. `info` is its label, or None to hide it.

    By default `info` shows a field on the condition on which it is written.
    """
    if info is None:
        shown = "never"
    spec = FieldSpec(
        name="",
        kind=kind,
        token=token,
        old_tokens=old_tokens,
        config=config,
        unset_below=unset_below,
        default=default,
        absent=absent,
        written=written,
        shape=shape,
        may_be_empty=may_be_empty,
        parameter=parameter,
        shown=written if shown is None else shown,
        label="auto" if info is None else info,
        show=show,
        minimum=minimum,
        above=above,
        maximum=maximum,
    )
    if default is _REQUIRED:
        start: Any = attrs.NOTHING
    elif callable(default):
        start = attrs.Factory(default, takes_self=True)
    else:
        start = default
    return attrs.field(
        default=start, converter=kind.converter, eq=kind.comparison, metadata={_SPEC: spec}
    )


integer = functools.partial(declare, kinds.Integer())
"""Declares a 32-bit integer."""
real = functools.partial(declare, kinds.Real())
"""Declares a number of single precision."""
double = functools.partial(declare, kinds.Real(double=True))
"""Declares a number that files hold in double precision."""
boolean = functools.partial(declare, kinds.Boolean())
"""Declares a bool."""
flag = functools.partial(
    declare, kinds.Flag(), default=False, absent=False, written="unless default"
)
"""Declares a bool that is true in a file if its token is there."""
integers = functools.partial(declare, kinds.Integers())
"""Declares a tuple of integers."""
integer_pairs = functools.partial(declare, kinds.IntegerPairs(), config=None)
"""Declares a tuple of pairs of integers."""
vector = functools.partial(declare, kinds.VECTOR, config=None)
"""Declares a float32 vector."""
matrix = functools.partial(declare, kinds.MATRIX, config=None)
"""Declares a float32 matrix."""
double_vector = functools.partial(declare, kinds.DOUBLE_VECTOR, config=None)
"""Declares a float64 vector."""
double_matrix = functools.partial(declare, kinds.DOUBLE_MATRIX, config=None)
"""Declares a float64 matrix."""
