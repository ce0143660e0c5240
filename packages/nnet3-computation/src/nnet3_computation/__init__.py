"""What passes between the stages of nnet3: requests, and programs of matrix commands."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_computation.checks import check_runnable as check_runnable
    from nnet3_computation.commands import COMMAND_TYPES as COMMAND_TYPES
    from nnet3_computation.commands import SCHEMA as SCHEMA
    from nnet3_computation.commands import AcceptInput as AcceptInput
    from nnet3_computation.commands import AddRowRanges as AddRowRanges
    from nnet3_computation.commands import AddRows as AddRows
    from nnet3_computation.commands import AddRowsMulti as AddRowsMulti
    from nnet3_computation.commands import AddToRowsMulti as AddToRowsMulti
    from nnet3_computation.commands import AllocMatrixUndefined as AllocMatrixUndefined
    from nnet3_computation.commands import AllocMatrixZeroed as AllocMatrixZeroed
    from nnet3_computation.commands import Backprop as Backprop
    from nnet3_computation.commands import BackpropNoModelUpdate as BackpropNoModelUpdate
    from nnet3_computation.commands import CompressMatrix as CompressMatrix
    from nnet3_computation.commands import CopyRows as CopyRows
    from nnet3_computation.commands import CopyRowsMulti as CopyRowsMulti
    from nnet3_computation.commands import CopyToRowsMulti as CopyToRowsMulti
    from nnet3_computation.commands import DeallocMatrix as DeallocMatrix
    from nnet3_computation.commands import DecompressMatrix as DecompressMatrix
    from nnet3_computation.commands import GotoLabel as GotoLabel
    from nnet3_computation.commands import MatrixAdd as MatrixAdd
    from nnet3_computation.commands import MatrixCopy as MatrixCopy
    from nnet3_computation.commands import NoOperation as NoOperation
    from nnet3_computation.commands import NoOperationLabel as NoOperationLabel
    from nnet3_computation.commands import NoOperationMarker as NoOperationMarker
    from nnet3_computation.commands import Propagate as Propagate
    from nnet3_computation.commands import ProvideOutput as ProvideOutput
    from nnet3_computation.commands import SetConst as SetConst
    from nnet3_computation.commands import StoreStats as StoreStats
    from nnet3_computation.commands import SwapMatrix as SwapMatrix
    from nnet3_computation.commands import command_table as command_table
    from nnet3_computation.commands.declaration import ALPHA_COLUMN as ALPHA_COLUMN
    from nnet3_computation.commands.declaration import FIRST_OPERAND_COLUMN as FIRST_OPERAND_COLUMN
    from nnet3_computation.commands.declaration import OPCODE_COLUMN as OPCODE_COLUMN
    from nnet3_computation.commands.declaration import TABLE_WIDTH as TABLE_WIDTH
    from nnet3_computation.commands.declaration import Access as Access
    from nnet3_computation.commands.declaration import Command as Command
    from nnet3_computation.commands.declaration import CommandSchema as CommandSchema
    from nnet3_computation.commands.declaration import Operand as Operand
    from nnet3_computation.commands.declaration import OperandKind as OperandKind
    from nnet3_computation.computation import CommandSequence as CommandSequence
    from nnet3_computation.computation import ComputationBuilder as ComputationBuilder
    from nnet3_computation.computation import NnetComputation as NnetComputation
    from nnet3_computation.computation.parts import MatrixDebugInfo as MatrixDebugInfo
    from nnet3_computation.errors import CheckError as CheckError
    from nnet3_computation.errors import CommandError as CommandError
    from nnet3_computation.errors import ComputationError as ComputationError
    from nnet3_computation.errors import ComputationSyntaxError as ComputationSyntaxError
    from nnet3_computation.errors import OptionError as OptionError
    from nnet3_computation.errors import RequestError as RequestError
    from nnet3_computation.memory import MemoryPlan as MemoryPlan
    from nnet3_computation.memory import live_bytes as live_bytes
    from nnet3_computation.memory import peak_bytes as peak_bytes
    from nnet3_computation.memory import plan_memory as plan_memory
    from nnet3_computation.output_difference import OutputDifference as OutputDifference
    from nnet3_computation.request import ComputationRequest as ComputationRequest
    from nnet3_computation.request import IoFingerprint as IoFingerprint
    from nnet3_computation.request import IoSpecification as IoSpecification
    from nnet3_computation.request import RequestFingerprint as RequestFingerprint
    from nnet3_computation.text import format_computation as format_computation
    from nnet3_computation.text import parse_computation as parse_computation
else:
    __getattr__, __dir__ = on_first_use(__name__)
