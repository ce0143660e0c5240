"""The base of all component classes: identity, index rules, parameters, construction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import NotImplementedType
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors import errors, limits
from nnet3_descriptors.components.declaration import fields, kinds
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.info import InfoEntry, items
from nnet3_descriptors.components.declaration.properties import (
    AtOffsets,
    ClosedForm,
    ComponentProperties,
)
from nnet3_descriptors.frozen_arrays import ByFields, ReadOnlyArrays
from nnet3_descriptors.indexes import INT32_MAX, IndexArray, Mask, Splits

_C = TypeVar("_C", bound="type[Component]")

_SAME_ROW: ClosedForm = (AtOffsets((0,)),)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def component_family(cls: _C) -> _C:
    """Makes a frozen base class with fields that several component types share."""
    fields.make_fields(cls)
    built: _C = attrs.frozen(kw_only=True, repr=False, eq=False)(cls)
    built.FIELDS = fields.field_specs(built)
    built.IS_ABSTRACT = True
    return built


def derived(meaning: str, formula: Callable[[Any], int]) -> int:
    """Declares a property: a number that follows from the fields."""
    return property(formula, doc=meaning)  # type: ignore[return-value]


input_columns = functools.partial(derived, "Number of columns of the input.")
output_columns = functools.partial(derived, "Number of columns of the output.")
columns = functools.partial(derived, "Number of columns of input and output.")
block_columns = functools.partial(derived, "Number of columns of a block.")


@attrs.frozen(kw_only=True)
class PrecomputedIndexes(ReadOnlyArrays):
    """The base of precomputed indexes, made once for each step; see `precompute_indexes`."""

    IS_ABSTRACT: ClassVar[bool] = True

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns a message if these indexes do not fit a component and its matrices, else None.

        Args:
            component: A component that has this type as `INDEXES`.
            rows_in: Number of rows of its input.
            rows_out: Number of rows of its output.
            backward: Whether the command runs it backward.
        """
        raise NotImplementedError


IndexesType = type[PrecomputedIndexes] | None
"""A type of precomputed indexes, or None for none."""


@component_family
class Component(ByFields, ReadOnlyArrays):
    """A component: configuration, and parameters or statistics where it has them.

    Row i of the input and output matrices of a component belongs to row i of `input_indexes` and
    `output_indexes`; columns are its `input_dim` and `output_dim`.
    """

    type: ClassVar[str] = "Component"
    """Kaldi's name of the type: the name of the class."""
    IS_ABSTRACT: ClassVar[bool] = True
    """Whether this is a base class of several types, and not a type."""
    FIELDS: ClassVar[tuple[fields.FieldSpec, ...]] = ()
    """The declarations of the fields, in file order."""
    PROPERTIES: ClassVar[ComponentProperties] = ComponentProperties(0)
    """The promises of the type, where they do not depend on the configuration."""
    BACKPROP_NEEDS_EXACT_VALUES: ClassVar[bool] = False
    """Whether the input derivative jumps where values that the backward computation reads are
    exactly 0, or equal, so that a rounding error changes it."""
    INDEXES: ClassVar[IndexesType] = None
    """The type that `precompute_indexes` returns; None for types that precompute nothing."""
    INFO: ClassVar[tuple[InfoEntry, ...]] = ()
    """The items that `info` shows, in order; empty: all visible fields in file order."""
    OBSOLETE: ClassVar[tuple[tuple[str, kinds.Kind], ...]] = ()
    """Tokens of older files without a meaning today, and the kinds of their values."""
    REPEATED: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Fields that files always repeat, and the names of the fields before the repetition."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.type = cls.__name__

    def __attrs_post_init__(self) -> None:
        """Checks the fields against their declarations, then against each other."""
        for spec in self.FIELDS:
            spec.check(self)
        self.check()
        for name in ("input_dim", "output_dim"):
            dim = getattr(self, name)
            self.require(1 <= dim <= INT32_MAX, f"{name} must be 1 to {INT32_MAX}, got {dim}")
            limits.check_limit("dim", dim, f"{self.type}: {name}")

    def check(self) -> None:
        """Raises NetworkError if the fields contradict each other."""

    @classmethod
    def spec(cls, name: str) -> fields.FieldSpec:
        """Returns the declaration of a field."""
        return next(spec for spec in cls.FIELDS if spec.name == name)

    def require(self, condition: object, message: str) -> None:
        """Raises a NetworkError that names the type unless `condition` holds."""
        if not condition:
            raise errors.NetworkError(f"{self.type}: {message}")

    def require_divides(self, part: str, whole: str) -> None:
        """Raises a NetworkError unless the field `whole` is a multiple of the field `part`."""
        size, found = getattr(self, whole), getattr(self, part)
        self.require(size % found == 0, f"'{part}' must divide {size}, got {found}")

    @property
    def properties(self) -> ComponentProperties:
        """The promises of this component."""
        return self.PROPERTIES

    @property
    def is_updated(self) -> bool:
        """Whether training changes it: it has parameters, and its learning rate is not 0."""
        return False

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return int(self.dim)  # type: ignore[attr-defined]

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return int(self.dim)  # type: ignore[attr-defined]

    # -- index rules ---------------------------------------------------------------------------

    @property
    def modulus(self) -> int:
        """Shifting t by multiples of this at the output shifts the needed input likewise."""
        return 1

    def input_dependencies(self, output_indexes: IndexArray) -> tuple[Splits, IndexArray]:
        """Returns all input indexes that rows of the output might use, as CSR.

        Args:
            output_indexes: (N, 3) int32, columns n, t, x.

        Returns:
            splits (N + 1,) int64 and input_indexes (M, 3) int32: output row i might use
            input_indexes[splits[i]:splits[i + 1]].
        """
        return np.arange(len(output_indexes) + 1, dtype=np.int64), output_indexes

    def is_computable(
        self, output_indexes: IndexArray, splits: Splits, input_indexes: IndexArray, available: Mask
    ) -> tuple[Mask, Mask]:
        """Returns which rows of the output can be computed and which inputs they then use.

        Args:
            output_indexes: (N, 3) int32.
            splits: (N + 1,) int64, from `input_dependencies`.
            input_indexes: (M, 3) int32, from `input_dependencies`.
            available: (M,) bool, whether each of input_indexes is available.

        Returns:
            computable (N,) bool, used (M,) bool. Unless a type says otherwise all its inputs are
            required.
        """
        missing_before = np.concatenate([[0], np.cumsum(~available)])
        computable = missing_before[splits[1:]] == missing_before[splits[:-1]]
        return computable, np.repeat(computable, np.diff(splits))

    def closed_form(self) -> ClosedForm | None:
        """Returns the rules of the two methods above as offsets in t; None if that is not possible.

        It makes large requests fast. If a class overrides one of the two methods but not this one,
        it has no closed form: the graph asks it about every row.
        """
        return _SAME_ROW

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """Returns both index arrays in the order, and with the padding, that the type needs.

        Padding rows have t = NO_TIME. Only types with REORDERS_INDEXES change anything.
        """
        return input_indexes, output_indexes

    def reorder_repeated_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray, int, int] | NotImplementedType:
        """Returns the same for a minibatch of equal sequences, from the rows of the first alone.

        Args:
            input_indexes: (M, 3) int32 of one n, ascending by t and x. If sequences differ, they
                are the minibatch, and these are the rows of all, ascending by t, x and n.
            output_indexes: (N, 3) int32 of the same n, in the same order.

        Returns:
            Input and output indexes of the first sequence in the order of `reorder_indexes`, and
            two lengths of blocks of rows: one for the input, one for the output. The sequences take
            turns in such blocks, in ascending order of n. NotImplemented if the type has to see the
            rows of all sequences.
        """
        return NotImplemented  # type: ignore[no-any-return]

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> PrecomputedIndexes | None:
        """Returns the facts about the rows that the arithmetic needs; None for simple types."""
        return None

    def precompute_repeated_indexes(
        self,
        input_indexes: IndexArray,
        output_indexes: IndexArray,
        need_backprop: bool,
        num_sequences: int,
    ) -> PrecomputedIndexes | NotImplementedType | None:
        """As `precompute_indexes`, for equal sequences, from the rows of the first alone.

        Their rows are in the order in which `reorder_indexes` puts them. NotImplemented if the type
        has to see the rows of all sequences.
        """
        return NotImplemented  # type: ignore[no-any-return]

    # -- parameters ----------------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters that training changes, in Kaldi's Vectorize order."""
        if not self.properties & ComponentProperties.UPDATABLE:
            return ()
        return tuple(spec.name for spec in self.FIELDS if spec.parameter)

    @property
    def num_parameters(self) -> int:
        """Number of trainable values."""
        return sum(array.size for array in self.parameter_arrays().values())

    def parameter_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Returns the trainable parameters by name, in Vectorize order."""
        arrays = self.arrays()
        return {name: arrays[name] for name in self.parameters}

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Returns all arrays by field name: parameters, fixed values and statistics."""
        values = {spec.name: getattr(self, spec.name) for spec in self.FIELDS}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def with_parameters(self, arrays: Mapping[str, NDArray[np.float32]]) -> Self:
        """Returns this component with other values for some of its parameters, of equal shape.

        Raises:
            NetworkError: a name is not that of a parameter, or a shape differs.
        """
        current = self.parameter_arrays()
        for name, array in arrays.items():
            self.require(name in current, f"has no parameter '{name}'")
            self.require(
                np.shape(array) == current[name].shape,
                f"'{name}' must have shape {current[name].shape}, got {np.shape(array)}",
            )
        return self.replace(**arrays)

    def replace(self, **changes: Any) -> Self:
        """Returns this component with other values for some of its fields.

        Raises:
            NetworkError: the values do not fit the field or each other.
        """
        return attrs.evolve(self, **changes)  # type: ignore[misc]

    def with_test_mode(self, on: bool) -> Self:
        """Returns this component in test mode, or out of it, if its type has one."""
        has_test_mode = any(spec.name == "test_mode" for spec in self.FIELDS)
        return self.replace(test_mode=on) if has_test_mode else self

    # -- construction and description ----------------------------------------------------------

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the fields that a config line gives indirectly, such as initial parameters.

        Fields with a config key are filled in afterwards.
        """
        return {}

    @classmethod
    def from_config(cls, config: ConfigLine, rng: np.random.Generator) -> Component:
        """Makes a component from a config line.

        Args:
            config: The keys and values of the line, without name and type.
            rng: Source of the initial parameters.

        Raises:
            ConfigError: a key is missing or unknown, or a value is not valid.
        """
        config.may_have(spec.config for spec in cls.FIELDS if spec.config is not None)
        values = cls.initial_fields(config, rng)
        for spec in cls.FIELDS:
            if spec.config is not None and spec.name not in values:
                spec.take(config, values)
        config.finish(cls.type)
        try:
            for spec in cls.FIELDS:  # before the defaults that depend on them
                if spec.name in values:
                    spec.check_range(values[spec.name], f"{cls.type}: '{spec.name}'")
            return cls(**values)
        except errors.NetworkError as error:
            raise cls._config_error(config, str(error)) from error

    @classmethod
    def _config_error(cls, config: ConfigLine, message: str) -> errors.ConfigError:
        """Returns the error for a config line; it has the keys in place of the fields."""
        blamed = None
        for spec in cls.FIELDS:
            key = spec.config or spec.name.replace("_", "-")
            if f"'{spec.name}'" in message and (spec.config is not None or config.has(key)):
                message = message.replace(f"'{spec.name}'", f"'{key}'")
                blamed = blamed or (key if config.has(key) else None)
        return config.error(message, blamed)

    def __repr__(self) -> str:
        """Type and sizes; `info` says more."""
        parameters = f", {self.num_parameters} parameters" if self.num_parameters else ""
        return f"<{self.type}: {self.input_dim} -> {self.output_dim} columns{parameters}>"

    def info(self) -> str:
        """Returns the line that nnet3-info prints for the component, from its type on."""
        with np.errstate(all="ignore"):  # parameters may be infinite
            return f"{self.type}{items(self, self.INFO)}"


@component_family
class UpdatableComponent(Component):
    """A component with parameters.

    Attributes:
        learning_rate: Step size, already multiplied by learning_rate_factor.
        learning_rate_factor: Multiplies learning rates that are set later.
        is_gradient: The parameters are a gradient.
        max_change: Bound on the Euclidean norm of one update; 0 for none.
        l2_regularize: Weight of the l2 term.
    """

    learning_rate_factor: float = fields.real(default=1.0, minimum=0.0, written="unless default")
    is_gradient: bool = fields.boolean(default=False, config=None, written="unless default")
    max_change: float = fields.real(default=0.0, minimum=0.0, written="unless default")
    l2_regularize: float = fields.real(
        default=0.0, minimum=0.0, token="<L2Regularize>", written="unless default"
    )
    learning_rate: float = fields.real(default=0.001, minimum=0.0, absent=0.001)

    COMMON_INFO: ClassVar[tuple[InfoEntry, ...]] = (
        "input_dim",
        "output_dim",
        "learning_rate",
        "is_gradient",
        "l2_regularize",
        "learning_rate_factor",
        "max_change",
    )
    """The lines of `info` with which all updatable types begin."""

    @property
    def training_settings(self) -> dict[str, Any]:
        """The values of the fields that all updatable types have, by name."""
        return {spec.name: getattr(self, spec.name) for spec in UpdatableComponent.FIELDS}

    @property
    def is_updated(self) -> bool:
        """Whether training changes it: it has parameters, and its learning rate is not 0."""
        return bool(self.properties & ComponentProperties.UPDATABLE) and self.learning_rate != 0.0
