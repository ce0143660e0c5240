"""The commands of a computation: one small class each.

A class declares its operands (kind, access), how the command is written (TEXT, from which both the
printer and the parser of the text form are made) and its opcode. Everything else follows from that
declaration; adding a command is adding a class here. Matrices named by an operand are submatrices
of the computation; `rows` below are rows of the submatrix.
"""

from typing import ClassVar

from nnet3_descriptors.components import ComponentProperties

from nnet3_computation.commands.declaration import (
    Access,
    Command,
    CommandSchema,
    OperandKind,
    operand,
    scale,
)

_SUBMATRIX = OperandKind.SUBMATRIX
_WHOLE = OperandKind.WHOLE_MATRIX
_READ, _WRITE, _READ_WRITE = Access.READ, Access.WRITE, Access.READ_WRITE


# -- memory ----------------------------------------------------------------------------------------


class AllocMatrixUndefined(Command):
    """Allocates a matrix; its elements are undefined."""

    OPCODE: ClassVar = 1
    TEXT: ClassVar = "{matrix} = undefined"
    matrix: int = operand(_WHOLE)


class AllocMatrixZeroed(Command):
    """Allocates a matrix and sets its elements to zero."""

    OPCODE: ClassVar = 2
    TEXT: ClassVar = "{matrix} = zeros"
    matrix: int = operand(_WHOLE, _WRITE)


class DeallocMatrix(Command):
    """Frees a matrix."""

    OPCODE: ClassVar = 3
    TEXT: ClassVar = "free {matrix}"
    matrix: int = operand(_WHOLE)


class SwapMatrix(Command):
    """Hands the memory and the elements of `source` to `destination`, which had none."""

    OPCODE: ClassVar = 4
    TEXT: ClassVar = "{destination} = take {source}"
    destination: int = operand(_WHOLE)
    source: int = operand(_WHOLE)


class CompressMatrix(Command):
    """Stores a matrix in fewer bits until it is decompressed.

    compression_type: 1 int8, 2 uint8, 3 int16, 4 uint16, 5 one bit. alpha: the range of values
    (0 for one bit, and for uint8 if it only says whether an element is positive).
    truncate: 1 if values may lie beyond that range.
    """

    OPCODE: ClassVar = 5
    TEXT: ClassVar = (
        "compress {matrix} (type {compression_type}, truncate {truncate}<, range {alpha}>)"
    )
    SIDE_EFFECTS: ClassVar = True
    matrix: int = operand(_WHOLE, _READ_WRITE)
    compression_type: int = operand(OperandKind.VALUE)
    truncate: int = operand(OperandKind.VALUE)
    alpha: float = scale()


class DecompressMatrix(Command):
    """Undoes CompressMatrix, up to rounding."""

    OPCODE: ClassVar = 6
    TEXT: ClassVar = "decompress {matrix}"
    SIDE_EFFECTS: ClassVar = True
    matrix: int = operand(_WHOLE, _READ_WRITE)


# -- components ------------------------------------------------------------------------------------


class Propagate(Command):
    """Runs a component forward."""

    OPCODE: ClassVar = 10
    TEXT: ClassVar = (
        "{output} = {component}.propagate({input}<, precomputed {precomputed_indexes}>"
        "<, memo {memo}>)"
    )
    component: int = operand(OperandKind.COMPONENT)
    precomputed_indexes: int = operand(OperandKind.PRECOMPUTED, optional=True)
    input: int = operand(_SUBMATRIX, _READ, optional=True)
    output: int = operand(_SUBMATRIX, _WRITE, adds_if=ComponentProperties.PROPAGATE_ADDS)
    memo: int = operand(OperandKind.MEMO, optional=True)


class StoreStats(Command):
    """Adds to the statistics that a component keeps of its activations."""

    OPCODE: ClassVar = 11
    TEXT: ClassVar = "{component}.store_stats({output}<, input {input}><, memo {memo}>)"
    SIDE_EFFECTS: ClassVar = True
    component: int = operand(OperandKind.COMPONENT)
    input: int = operand(_SUBMATRIX, _READ, optional=True)
    output: int = operand(_SUBMATRIX, _READ)
    memo: int = operand(OperandKind.MEMO, optional=True)


class _Backward(Command):
    """The operands of commands that run a component backward."""

    component: int = operand(OperandKind.COMPONENT)
    precomputed_indexes: int = operand(OperandKind.PRECOMPUTED, optional=True)
    input_value: int = operand(_SUBMATRIX, _READ, optional=True)
    output_value: int = operand(_SUBMATRIX, _READ, optional=True)
    output_deriv: int = operand(_SUBMATRIX, _READ)
    input_deriv: int = operand(
        _SUBMATRIX, _WRITE, adds_if=ComponentProperties.BACKPROP_ADDS, optional=True
    )
    memo: int = operand(OperandKind.MEMO, optional=True)


class Backprop(_Backward):
    """Runs a component backward: its input derivative (0: not wanted) and its model update."""

    OPCODE: ClassVar = 12
    TEXT: ClassVar = (
        "{input_deriv} = {component}.backprop({output_deriv}<, input {input_value}>"
        "<, output {output_value}><, precomputed {precomputed_indexes}><, memo {memo}>)"
    )
    SIDE_EFFECTS_IF: ClassVar = ComponentProperties.UPDATABLE


class BackpropNoModelUpdate(_Backward):
    """Runs a component backward for its input derivative alone."""

    OPCODE: ClassVar = 13
    TEXT: ClassVar = (
        "{input_deriv} = {component}.backprop_no_update({output_deriv}<, input {input_value}>"
        "<, output {output_value}><, precomputed {precomputed_indexes}><, memo {memo}>)"
    )


# -- copies and sums -------------------------------------------------------------------------------


class SetConst(Command):
    """Sets all elements of `output` to alpha."""

    OPCODE: ClassVar = 20
    TEXT: ClassVar = "{output} = constant {alpha}"
    output: int = operand(_SUBMATRIX, _WRITE)
    alpha: float = scale()


class MatrixCopy(Command):
    """output = alpha * input."""

    OPCODE: ClassVar = 21
    TEXT: ClassVar = "{output} = <{alpha} * >{input}"
    output: int = operand(_SUBMATRIX, _WRITE)
    input: int = operand(_SUBMATRIX, _READ)
    alpha: float = scale()


class MatrixAdd(Command):
    """output += alpha * input."""

    OPCODE: ClassVar = 22
    TEXT: ClassVar = "{output} += <{alpha} * >{input}"
    output: int = operand(_SUBMATRIX, _READ_WRITE)
    input: int = operand(_SUBMATRIX, _READ)
    alpha: float = scale()


class CopyRows(Command):
    """Row i of output = alpha * row indexes[i] of input, or zero where the index is -1."""

    OPCODE: ClassVar = 23
    TEXT: ClassVar = "{output} = <{alpha} * >{input}[{indexes}]"
    output: int = operand(_SUBMATRIX, _WRITE)
    input: int = operand(_SUBMATRIX, _READ)
    indexes: int = operand(OperandKind.INDEXES)
    alpha: float = scale()


class AddRows(Command):
    """Row i of output += alpha * row indexes[i] of input, unless the index is -1."""

    OPCODE: ClassVar = 24
    TEXT: ClassVar = "{output} += <{alpha} * >{input}[{indexes}]"
    output: int = operand(_SUBMATRIX, _READ_WRITE)
    input: int = operand(_SUBMATRIX, _READ)
    indexes: int = operand(OperandKind.INDEXES)
    alpha: float = scale()


class CopyRowsMulti(Command):
    """Row i of output = alpha * the row that indexes_multi[i] names, or zero for (-1, -1)."""

    OPCODE: ClassVar = 25
    TEXT: ClassVar = "{output} = <{alpha} * >rows({indexes_multi})"
    output: int = operand(_SUBMATRIX, _WRITE)
    indexes_multi: int = operand(OperandKind.INDEXES_MULTI, _READ)
    alpha: float = scale()


class AddRowsMulti(Command):
    """Row i of output += alpha * the row that indexes_multi[i] names, unless it is (-1, -1)."""

    OPCODE: ClassVar = 26
    TEXT: ClassVar = "{output} += <{alpha} * >rows({indexes_multi})"
    output: int = operand(_SUBMATRIX, _READ_WRITE)
    indexes_multi: int = operand(OperandKind.INDEXES_MULTI, _READ)
    alpha: float = scale()


class CopyToRowsMulti(Command):
    """The row that indexes_multi[i] names = alpha * row i of input; no row is named twice."""

    OPCODE: ClassVar = 27
    TEXT: ClassVar = "rows({indexes_multi}) = <{alpha} * >{input}"
    input: int = operand(_SUBMATRIX, _READ)
    indexes_multi: int = operand(OperandKind.INDEXES_MULTI, _READ_WRITE)
    alpha: float = scale()


class AddToRowsMulti(Command):
    """The row that indexes_multi[i] names += alpha * row i of input; no row is named twice."""

    OPCODE: ClassVar = 28
    TEXT: ClassVar = "rows({indexes_multi}) += <{alpha} * >{input}"
    input: int = operand(_SUBMATRIX, _READ)
    indexes_multi: int = operand(OperandKind.INDEXES_MULTI, _READ_WRITE)
    alpha: float = scale()


class AddRowRanges(Command):
    """Row i of output += alpha * the sum of rows begin <= r < end of input.

    (begin, end) is indexes_ranges[i]; nothing is added where begin is -1.
    """

    OPCODE: ClassVar = 29
    TEXT: ClassVar = "{output} += <{alpha} * >sums({input}[{indexes_ranges}])"
    output: int = operand(_SUBMATRIX, _READ_WRITE)
    input: int = operand(_SUBMATRIX, _READ)
    indexes_ranges: int = operand(OperandKind.INDEXES_RANGES)
    alpha: float = scale()


# -- the world outside, and control ----------------------------------------------------------------


class AcceptInput(Command):
    """Takes a matrix from the user: an input, or after the marker an output derivative."""

    OPCODE: ClassVar = 40
    TEXT: ClassVar = "{matrix} = accept {node}"
    SIDE_EFFECTS: ClassVar = True
    matrix: int = operand(_WHOLE, _WRITE)
    node: int = operand(OperandKind.NODE)


class ProvideOutput(Command):
    """Gives a matrix to the user: an output, or after the marker an input derivative."""

    OPCODE: ClassVar = 41
    TEXT: ClassVar = "provide {node} = {matrix}"
    SIDE_EFFECTS: ClassVar = True
    matrix: int = operand(_WHOLE, _READ)
    node: int = operand(OperandKind.NODE)


class NoOperation(Command):
    """Does nothing; may be removed."""

    OPCODE: ClassVar = 42
    TEXT: ClassVar = "nothing"


class NoOperationMarker(Command):
    """Ends a segment: the forward computation, or one chunk of a computation in several."""

    OPCODE: ClassVar = 43
    TEXT: ClassVar = "segment end"
    SIDE_EFFECTS: ClassVar = True


class NoOperationLabel(Command):
    """The place that a GotoLabel goes to."""

    OPCODE: ClassVar = 44
    TEXT: ClassVar = "label"
    SIDE_EFFECTS: ClassVar = True


class GotoLabel(Command):
    """Continues after the NoOperationLabel at position `label`; the last command of a loop."""

    OPCODE: ClassVar = 45
    TEXT: ClassVar = "goto {label}"
    SIDE_EFFECTS: ClassVar = True
    label: int = operand(OperandKind.LABEL)


COMMAND_TYPES: tuple[type[Command], ...] = tuple(
    value
    for value in list(globals().values())
    if isinstance(value, type) and issubclass(value, Command) and hasattr(value, "OPCODE")
)
"""All command classes, in the order of this file."""

SCHEMA: CommandSchema = CommandSchema.of(COMMAND_TYPES)
"""Their declarations as arrays."""
