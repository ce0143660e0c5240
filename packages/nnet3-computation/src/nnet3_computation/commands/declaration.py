"""The declaration of a command class, and the schema of tables that follows from it.

A command is one row of an int32 table. Column 0 is its opcode, and column 1 is alpha (the bits of a
float32). Its operands follow from column 2 on, in the order of declaration. Unused columns are 0.
Analyses of whole tables read a `CommandSchema`, analyses of single commands read
`Command.OPERANDS`; both come from the one declaration on the class.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, dataclass_transform

import numpy as np
from attrs.exceptions import FrozenInstanceError
from nnet3_descriptors.components import ComponentProperties
from numpy.typing import NDArray

from nnet3_computation.errors import CommandError

OPCODE_COLUMN = 0
"""The column of a table of commands that has the number of the command's kind."""
ALPHA_COLUMN = 1
"""The column of the factor alpha, the bits of a float32."""
FIRST_OPERAND_COLUMN = 2
"""The column of the first operand; the others follow in the order of the command's fields."""
MAX_OPERANDS = 7
NO_PROPERTIES = ComponentProperties(0)
TABLE_WIDTH = FIRST_OPERAND_COLUMN + MAX_OPERANDS
"""The columns of a table of commands, whose rows are commands."""

Table = NDArray[np.int32]
"""Commands as rows: (commands, TABLE_WIDTH) int32."""


class OperandKind(enum.IntEnum):
    """The kind of thing that the number in an operand's column names."""

    NONE = 0
    """The column is unused."""
    SUBMATRIX = 1
    """A submatrix of the computation."""
    WHOLE_MATRIX = 2
    """A submatrix that covers a whole matrix."""
    COMPONENT = 3
    """An index into the components of the network."""
    PRECOMPUTED = 4
    """An index into `precomputed_indexes`; 0 for none."""
    MEMO = 5
    """The number of a memo, which one Propagate hands to later commands; 0 for none."""
    INDEXES = 6
    """An index into `indexes`."""
    INDEXES_MULTI = 7
    """An index into `indexes_multi`; its access applies to the submatrices listed there."""
    INDEXES_RANGES = 8
    """An index into `indexes_ranges`."""
    NODE = 9
    """An index into the nodes of the network."""
    LABEL = 10
    """The position of a NoOperationLabel in the list of commands."""
    VALUE = 11
    """A number that refers to nothing."""


MATRIX_KINDS = (OperandKind.SUBMATRIX, OperandKind.WHOLE_MATRIX)


class Access(enum.IntFlag):
    """The effect of a command on the elements of an operand."""

    NONE = 0
    """Neither reads nor writes elements (allocation, deallocation, swap)."""
    READ = 1
    WRITE = 2
    """Sets every element, whatever it was before."""
    READ_WRITE = 3
    """The new value depends on the old one, or some elements are left as they were."""


class Operand(NamedTuple):
    """The declaration of one operand.

    Attributes:
        kind: What the number refers to.
        access: Whether the command reads, sets or changes the elements, if the operand names
            matrices.
        adds_if: A WRITE becomes READ_WRITE for components that have this property.
        optional: 0 is allowed and means that there is none.
        name: The name of the field.
        column: The column of the table.
    """

    kind: OperandKind
    access: Access = Access.NONE
    adds_if: ComponentProperties = NO_PROPERTIES
    optional: bool = False
    name: str = ""
    column: int = 0

    @property
    def least(self) -> int:
        """The smallest value: 1 for a matrix that must be there."""
        return int(self.kind in MATRIX_KINDS and not self.optional)


def operand(
    kind: OperandKind,
    access: Access = Access.NONE,
    *,
    adds_if: ComponentProperties = NO_PROPERTIES,
    optional: bool = False,
) -> Any:
    """Declares an operand as a field of a command class; see `Operand`."""
    return Operand(kind, access, adds_if, optional)


_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def scale() -> Any:
    """Declares the field `alpha`, a factor that is rounded to float32; 1 if it is not given."""


def _as_float32(value: Any) -> float:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    # Beside a float16, any limit would be infinite.
    number = value.item() if isinstance(value, np.generic) else value
    # This comes before rounding, which would warn of an overflow. The comparison is False for nan.
    if not is_number or not abs(number) <= _LARGEST_FLOAT32:
        raise CommandError(f"alpha must be a finite number of float32 (got {value!r:.80})")
    return float(np.float32(value))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(operand, scale))
class Command:
    """Base of the commands: a frozen value with named operands.

    A subclass declares class attributes and fields; the others follow from its fields:

    - `OPCODE`: the number in column 0 of the table; part of the serialized form.
    - `TEXT`: how the command is written, with the names of its fields in braces. Text in angle
      brackets is left out if its field has the default value (0, alpha 1).
    - `OPERANDS`: the operands, in the order of their columns.
    - `HAS_ALPHA`: whether there is a field `alpha`.
    - `SIDE_EFFECTS`: whether it does more than write to its operands.
    - `SIDE_EFFECTS_IF`: it has side effects for components with this property.
    """

    OPCODE: ClassVar[int]
    TEXT: ClassVar[str]
    OPERANDS: ClassVar[tuple[Operand, ...]] = ()
    HAS_ALPHA: ClassVar[bool] = False
    SIDE_EFFECTS: ClassVar[bool] = False
    SIDE_EFFECTS_IF: ClassVar[ComponentProperties] = NO_PROPERTIES
    __signature__: ClassVar[inspect.Signature] = inspect.Signature()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        fields = {name: each for name, each in vars(cls).items() if isinstance(each, Operand)}
        cls.OPERANDS += tuple(
            each._replace(name=name, column=column)
            for column, (name, each) in enumerate(
                fields.items(), FIRST_OPERAND_COLUMN + len(cls.OPERANDS)
            )
        )
        for name in fields:
            delattr(cls, name)
        if "alpha" in vars(cls):
            cls.HAS_ALPHA = True
            delattr(cls, "alpha")
        cls.__signature__ = inspect.Signature(
            [_parameter(each.name, int, 0, each.optional) for each in cls.OPERANDS]
            + [_parameter("alpha", float, 1.0, has_default=True)] * cls.HAS_ALPHA
        )

    def __init__(self, **values: Any) -> None:
        """Takes a value for each field, by name: an integer, or the factor alpha."""
        name = type(self).__name__
        for unknown in values.keys() - self.__signature__.parameters.keys():
            raise TypeError(f"{name} has no '{unknown}'")
        fields = vars(self)
        for declared in self.OPERANDS:
            if declared.name not in values and not declared.optional:
                raise TypeError(f"{name} needs '{declared.name}'")
            value = values.get(declared.name, 0)
            _check_operand(name, declared, value)
            fields[declared.name] = value
        if self.HAS_ALPHA:
            fields["alpha"] = _as_float32(values.get("alpha", 1.0))

    def __replace__(self, **changes: Any) -> Self:
        """Returns the command with other values of some fields: `copy.replace`."""
        return type(self)(**vars(self) | changes)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError

    def __eq__(self, other: object) -> bool:
        return vars(other) == vars(self) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({', '.join(shown)})"

    @property
    def row(self) -> tuple[int, ...]:
        """The command as a row of the table."""
        row = [0] * TABLE_WIDTH
        row[OPCODE_COLUMN] = self.OPCODE
        if self.HAS_ALPHA:
            row[ALPHA_COLUMN] = alpha_bits(self.alpha)  # type: ignore[attr-defined]
        for declared in self.OPERANDS:
            row[declared.column] = int(getattr(self, declared.name))
        return tuple(row)

    @classmethod
    def from_row(cls, row: Sequence[int]) -> Self:
        """Returns the command that a row of the table stands for, without checking its opcode."""
        values: dict[str, Any] = {item.name: int(row[item.column]) for item in cls.OPERANDS}
        if cls.HAS_ALPHA:
            values["alpha"] = alpha_value(int(row[ALPHA_COLUMN]))
        return cls(**values)


def _parameter(name: str, kind: type, default: float, has_default: bool) -> inspect.Parameter:
    """A parameter of the constructor of a command."""
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default if has_default else inspect.Parameter.empty,
        annotation=kind,
    )


def _check_operand(command: str, declared: Operand, value: Any) -> None:
    """Raises a CommandError unless an operand is a number that its kind allows."""
    if type(value) is int and declared.least <= value < 2**31:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise CommandError(f"{command}.{declared.name} must be an integer (got {value!r})")
    if not declared.least <= value < 2**31:
        raise CommandError(
            f"{command}.{declared.name} must be from {declared.least} to {2**31 - 1} (got {value})"
        )


def alpha_bits(alpha: float) -> int:
    """Returns the bits of alpha as float32, read as int32."""
    return int(np.float32(alpha).view(np.int32))


def alpha_value(bits: int) -> float:
    """Returns the inverse of `alpha_bits`."""
    return float(np.int32(bits).view(np.float32))


class CommandSchema(NamedTuple):
    """The declarations of all command classes as arrays indexed [opcode, column of the table].

    With `opcodes = table[:, OPCODE_COLUMN]`, `schema.kind[opcodes]` has the shape of the table and
    tells the kind of each of its entries; the other arrays work in the same way.

    Attributes:
        types: The command classes by opcode; None where an opcode is not used.
        kind: (opcodes, TABLE_WIDTH) int8, values of `OperandKind`.
        access: (opcodes, TABLE_WIDTH) int8, values of `Access`, without the effect of `adds_if`.
        adds_if: (opcodes, TABLE_WIDTH) int32, values of `ComponentProperties`.
        optional: (opcodes, TABLE_WIDTH) bool, whether 0 means that there is none.
        is_matrix: (opcodes, TABLE_WIDTH) bool, whether the operand is a submatrix.
        component_column: (opcodes,) int32, the column of the component; 0 if there is none.
        side_effects: (opcodes,) bool.
        side_effects_if: (opcodes,) int32, values of `ComponentProperties`.
        known: (opcodes,) bool, whether the opcode is in use.
    """

    types: tuple[type[Command] | None, ...]
    kind: NDArray[np.int8]
    access: NDArray[np.int8]
    adds_if: NDArray[np.int32]
    optional: NDArray[np.bool_]
    is_matrix: NDArray[np.bool_]
    component_column: NDArray[np.int32]
    side_effects: NDArray[np.bool_]
    side_effects_if: NDArray[np.int32]
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, types: Iterable[type[Command]]) -> Self:
        """Returns the schema of these command classes.

        Raises:
            CommandError: Two classes have the same opcode, or one has too many operands.
        """
        by_opcode: dict[int, type[Command]] = {}
        for command_type in types:
            other = by_opcode.setdefault(command_type.OPCODE, command_type)
            if other is not command_type:
                raise CommandError(
                    f"opcode {command_type.OPCODE} belongs to both {other.__name__} and "
                    f"{command_type.__name__}"
                )
            if len(command_type.OPERANDS) > MAX_OPERANDS:
                raise CommandError(f"{command_type.__name__} has more than {MAX_OPERANDS} operands")
        size = max(by_opcode) + 1
        shape = (size, TABLE_WIDTH)
        kind, access = np.zeros(shape, np.int8), np.zeros(shape, np.int8)
        adds_if, optional = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
        component_column = np.zeros(size, np.int32)
        for opcode, command_type in by_opcode.items():
            for item in command_type.OPERANDS:
                at = opcode, item.column
                kind[at], access[at] = item.kind, item.access
                adds_if[at], optional[at] = item.adds_if, item.optional
                if item.kind is OperandKind.COMPONENT:
                    component_column[opcode] = item.column
        all_types = [by_opcode.get(opcode) for opcode in range(size)]
        arrays: dict[str, Any] = {
            "kind": kind,
            "access": access,
            "adds_if": adds_if,
            "optional": optional,
            "is_matrix": np.isin(kind, MATRIX_KINDS),
            "component_column": component_column,
            "side_effects": np.array([bool(t and t.SIDE_EFFECTS) for t in all_types]),
            "side_effects_if": np.array(
                [int(t.SIDE_EFFECTS_IF) if t else 0 for t in all_types], np.int32
            ),
            "known": np.array([t is not None for t in all_types]),
        }
        for array in arrays.values():
            array.flags.writeable = False
        return cls(types=tuple(all_types), **arrays)

    def command(self, row: Sequence[int]) -> Command:
        """Returns the command object of a row of the table.

        Raises:
            CommandError: The opcode is unknown.
        """
        opcode = int(row[OPCODE_COLUMN])
        command_type = self.types[opcode] if 0 <= opcode < len(self.types) else None
        if command_type is None:
            raise CommandError(f"there is no command with opcode {opcode}")
        return command_type.from_row(row)
