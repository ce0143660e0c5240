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
from typing import Any, Final, Literal, ParamSpec

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import config_line, kinds
from nnet3_descriptors.errors import NetworkError

Array = NDArray[np.float32]
Written = Literal["always", "unless default"] | Callable[[Any], bool]
"""The condition for writing a field, or for showing it."""
Shape = tuple[str | int, ...]

_SPEC: Final = "nnet3"
_REQUIRED: Final = object()
_AUTO: Final = "auto"

P = ParamSpec("P")


@attrs.frozen(kw_only=True, eq=False)
class FieldSpec:
    """The declaration of one field of a class.

    What is "auto" follows from the name of the field.

    Attributes:
        kind: Its type in files and config lines.
        name: Name of the attribute; the class that the field is in fills it in.
        default: Default of a config line; a callable gets the component. By default there is none,
            and a line must have the key.
        token: Words that stand before the value in a file; "" if it follows the value of the
            field before it directly.
        old_tokens: The tokens of older files in its place.
        config: Key in config lines; None if a config line does not give the value.
        unset_below: A config value below this counts as not given.
        absent: Value where a file lacks the token: a value, or a function of the fields read
            before it. By default files must have it, if they always do.
        written: The condition for writing the token.
        shape: For arrays, names of the attributes that give rows and columns.
        may_be_empty: Whether an empty array is valid, too.
        parameter: Training changes it.
        info: Name by which `info` shows it; None to hide it.
        shown: The condition for showing it; by default that for writing it.
        show: The format of the value in `info`.
        minimum: Least value.
        above: An exclusive lower bound.
        maximum: Greatest value.
    """

    kind: kinds.Kind
    name: str = ""
    default: Any = _REQUIRED
    token: str = _AUTO
    old_tokens: tuple[str, ...] = ()
    config: str | None = _AUTO
    unset_below: float | None = None
    absent: Any = _REQUIRED
    written: Written = "always"
    shape: Shape = ()
    may_be_empty: bool = False
    parameter: bool = False
    info: str | None = _AUTO
    shown: Written | None = None
    show: Callable[[str, Any], str] | None = None
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None

    def field(self, name: str) -> Any:
        """Returns the field of an attrs class of that name."""
        words = name.replace("_", "-")
        spec = attrs.evolve(
            self,
            name=name,
            token=f"<{_camel_case(name)}>" if self.token == _AUTO else self.token,
            config=words if self.config == _AUTO else self.config,
            info=words if self.info == _AUTO else self.info,
        )
        start = attrs.NOTHING if self.default is _REQUIRED else self.default
        return attrs.field(
            default=attrs.Factory(start, takes_self=True) if callable(start) else start,
            converter=self.kind.converter,
            eq=self.kind.comparison,
            metadata={_SPEC: spec},
        )

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

    def default_for(self, component: Any) -> Any:
        """Returns the default value of the field in that component."""
        return self.default(component) if callable(self.default) else self.default

    def is_written(self, component: Any) -> bool:
        """Tells whether the field is written for that component."""
        return self._holds(self.written, component)

    def is_shown(self, component: Any) -> bool:
        """Tells whether `info` shows the field for that component."""
        when = self.written if self.shown is None else self.shown
        return self.info is not None and self._holds(when, component)

    def _holds(self, when: Written, component: Any) -> bool:
        if callable(when):
            return bool(when(component))
        if when == "unless default":
            return bool(getattr(component, self.name) != self.default_for(component))
        return when == "always"

    def check(self, component: Any) -> None:
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


def make_fields(cls: type) -> None:
    """Makes attrs' fields of the declarations in a component class."""
    for name, declared in tuple(vars(cls).items()):
        if isinstance(declared, FieldSpec):
            setattr(cls, name, declared.field(name))


def field_specs(cls: type) -> tuple[FieldSpec, ...]:
    """Returns the declarations of the fields of a component class, in file order."""
    return tuple(attribute.metadata[_SPEC] for attribute in attrs.fields(cls))


def _number(value: float) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    # A number beyond the range of float32, such as 1e300, becomes infinite.
    return f"{text} in single precision" if math.isinf(value) else text


def _camel_case(name: str) -> str:
    return re.sub(r"(?:^|_)([a-z0-9])", lambda match: match[1].upper(), name)


def _declaring(make: Callable[P, FieldSpec]) -> Callable[P, Any]:
    """Returns a function that declares fields: to type checkers they have the types of values."""
    return make


def declare(kind: kinds.Kind, **settings: Any) -> Any:
    """Declares a field of any kind; see FieldSpec for the settings."""
    return FieldSpec(kind=kind, **settings)


_declare = _declaring(FieldSpec)
integer = functools.partial(_declare, kind=kinds.Integer())
"""Declares a 32-bit integer."""
real = functools.partial(_declare, kind=kinds.Real())
"""Declares a number of single precision."""
double = functools.partial(_declare, kind=kinds.Real(double=True))
"""Declares a number that files hold in double precision."""
boolean = functools.partial(_declare, kind=kinds.Boolean())
"""Declares a bool."""
flag = functools.partial(
    _declare, kind=kinds.Flag(), default=False, absent=False, written="unless default"
)
"""Declares a bool that is true in a file if its token is there."""
integers = functools.partial(_declare, kind=kinds.Integers())
"""Declares a tuple of integers."""
integer_pairs = functools.partial(_declare, kind=kinds.IntegerPairs(), config=None)
"""Declares a tuple of pairs of integers."""
vector = functools.partial(_declare, kind=kinds.VECTOR, config=None)
"""Declares a float32 vector."""
matrix = functools.partial(_declare, kind=kinds.MATRIX, config=None)
"""Declares a float32 matrix."""
double_vector = functools.partial(_declare, kind=kinds.DOUBLE_VECTOR, config=None)
"""Declares a float64 vector."""
double_matrix = functools.partial(_declare, kind=kinds.DOUBLE_MATRIX, config=None)
"""Declares a float64 matrix."""
