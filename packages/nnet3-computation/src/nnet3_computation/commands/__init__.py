"""The commands: their classes, the declarations on these, and commands as rows of a table."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.commands.classes import COMMAND_TYPES as COMMAND_TYPES
    from nnet3_computation.commands.classes import SCHEMA as SCHEMA
    from nnet3_computation.commands.classes import AcceptInput as AcceptInput
    from nnet3_computation.commands.classes import AddRowRanges as AddRowRanges
    from nnet3_computation.commands.classes import AddRows as AddRows
    from nnet3_computation.commands.classes import AddRowsMulti as AddRowsMulti
    from nnet3_computation.commands.classes import AddToRowsMulti as AddToRowsMulti
    from nnet3_computation.commands.classes import AllocMatrixUndefined as AllocMatrixUndefined
    from nnet3_computation.commands.classes import AllocMatrixZeroed as AllocMatrixZeroed
    from nnet3_computation.commands.classes import Backprop as Backprop
    from nnet3_computation.commands.classes import BackpropNoModelUpdate as BackpropNoModelUpdate
    from nnet3_computation.commands.classes import CompressMatrix as CompressMatrix
    from nnet3_computation.commands.classes import CopyRows as CopyRows
    from nnet3_computation.commands.classes import CopyRowsMulti as CopyRowsMulti
    from nnet3_computation.commands.classes import CopyToRowsMulti as CopyToRowsMulti
    from nnet3_computation.commands.classes import DeallocMatrix as DeallocMatrix
    from nnet3_computation.commands.classes import DecompressMatrix as DecompressMatrix
    from nnet3_computation.commands.classes import GotoLabel as GotoLabel
    from nnet3_computation.commands.classes import MatrixAdd as MatrixAdd
    from nnet3_computation.commands.classes import MatrixCopy as MatrixCopy
    from nnet3_computation.commands.classes import NoOperation as NoOperation
    from nnet3_computation.commands.classes import NoOperationLabel as NoOperationLabel
    from nnet3_computation.commands.classes import NoOperationMarker as NoOperationMarker
    from nnet3_computation.commands.classes import Propagate as Propagate
    from nnet3_computation.commands.classes import ProvideOutput as ProvideOutput
    from nnet3_computation.commands.classes import SetConst as SetConst
    from nnet3_computation.commands.classes import StoreStats as StoreStats
    from nnet3_computation.commands.classes import SwapMatrix as SwapMatrix
    from nnet3_computation.commands.declaration import ALPHA_COLUMN as ALPHA_COLUMN
    from nnet3_computation.commands.declaration import FIRST_OPERAND_COLUMN as FIRST_OPERAND_COLUMN
    from nnet3_computation.commands.declaration import OPCODE_COLUMN as OPCODE_COLUMN
    from nnet3_computation.commands.declaration import TABLE_WIDTH as TABLE_WIDTH
    from nnet3_computation.commands.declaration import Access as Access
    from nnet3_computation.commands.declaration import Command as Command
    from nnet3_computation.commands.declaration import CommandSchema as CommandSchema
    from nnet3_computation.commands.declaration import Operand as Operand
    from nnet3_computation.commands.declaration import OperandKind as OperandKind
    from nnet3_computation.commands.declaration import Table as Table
    from nnet3_computation.commands.declaration import alpha_bits as alpha_bits
    from nnet3_computation.commands.declaration import alpha_value as alpha_value
    from nnet3_computation.commands.tables import COMPRESSED_BITS as COMPRESSED_BITS
    from nnet3_computation.commands.tables import INT16 as INT16
    from nnet3_computation.commands.tables import ONE_BIT as ONE_BIT
    from nnet3_computation.commands.tables import columns as columns
    from nnet3_computation.commands.tables import command_rows as command_rows
    from nnet3_computation.commands.tables import command_table as command_table
    from nnet3_computation.commands.tables import hand_over_commands as hand_over_commands
    from nnet3_computation.commands.tables import is_in_segments as is_in_segments
    from nnet3_computation.commands.tables import is_loop as is_loop
    from nnet3_computation.commands.tables import keeps_sign_only as keeps_sign_only
    from nnet3_computation.commands.tables import operand as operand
    from nnet3_computation.commands.tables import operands_of as operands_of
    from nnet3_computation.commands.tables import origins as origins
else:
    __getattr__, __dir__ = on_first_use(__name__)
