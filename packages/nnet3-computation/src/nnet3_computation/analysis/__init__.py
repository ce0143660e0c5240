"""The reads and writes of commands, as arrays: by submatrix, by matrix, and by variable."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.analysis.accesses import LIST_COLUMN as LIST_COLUMN
    from nnet3_computation.analysis.accesses import MEMO_COLUMN as MEMO_COLUMN
    from nnet3_computation.analysis.accesses import NEVER as NEVER
    from nnet3_computation.analysis.accesses import READ as READ
    from nnet3_computation.analysis.accesses import WRITE as WRITE
    from nnet3_computation.analysis.accesses import AccessLists as AccessLists
    from nnet3_computation.analysis.accesses import CommandKinds as CommandKinds
    from nnet3_computation.analysis.accesses import Lifetimes as Lifetimes
    from nnet3_computation.analysis.accesses import PairLists as PairLists
    from nnet3_computation.analysis.accesses import SubmatrixAccesses as SubmatrixAccesses
    from nnet3_computation.analysis.accesses import columns_of_kind as columns_of_kind
    from nnet3_computation.analysis.accesses import matrix_accesses as matrix_accesses
    from nnet3_computation.analysis.accesses import memos as memos
    from nnet3_computation.analysis.accesses import variable_accesses as variable_accesses
    from nnet3_computation.analysis.analysis import Analysis as Analysis
    from nnet3_computation.analysis.analysis import CommandAttributes as CommandAttributes
    from nnet3_computation.analysis.analysis import Flow as Flow
    from nnet3_computation.analysis.analysis import analyze as analyze
    from nnet3_computation.analysis.layout import COL_OFFSET as COL_OFFSET
    from nnet3_computation.analysis.layout import MATRIX as MATRIX
    from nnet3_computation.analysis.layout import NUM_COLS as NUM_COLS
    from nnet3_computation.analysis.layout import NUM_ROWS as NUM_ROWS
    from nnet3_computation.analysis.layout import OFFSETS as OFFSETS
    from nnet3_computation.analysis.layout import ROW_OFFSET as ROW_OFFSET
    from nnet3_computation.analysis.layout import Layout as Layout
    from nnet3_computation.analysis.layout import Variables as Variables
    from nnet3_computation.analysis.layout import contain as contain
    from nnet3_computation.analysis.layout import overlap as overlap
    from nnet3_computation.analysis.uses import Reads as Reads
    from nnet3_computation.analysis.uses import Rectangle as Rectangle
    from nnet3_computation.analysis.uses import Uses as Uses
else:
    __getattr__, __dir__ = on_first_use(__name__)
