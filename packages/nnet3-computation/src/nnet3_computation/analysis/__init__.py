"""The reads and writes of commands, as arrays: by submatrix, by matrix, and by variable."""

from nnet3_computation.analysis.accesses import (
    LIST_COLUMN,
    NEVER,
    READ,
    WRITE,
    AccessLists,
    Lifetimes,
    SubmatrixAccesses,
    matrix_accesses,
    variable_accesses,
)
from nnet3_computation.analysis.analysis import Analysis, CommandAttributes, Findings, analyze
from nnet3_computation.analysis.flow import Flow
from nnet3_computation.analysis.kinds import MEMO_COLUMN, CommandKinds, columns_of_kind, memos
from nnet3_computation.analysis.layout import Layout
from nnet3_computation.analysis.pair_lists import PairLists
from nnet3_computation.analysis.uses import Reads, Uses
from nnet3_computation.analysis.variables import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    OFFSETS,
    ROW_OFFSET,
    Variables,
    contain,
    overlap,
)

__all__ = [
    "COL_OFFSET",
    "LIST_COLUMN",
    "MATRIX",
    "MEMO_COLUMN",
    "NEVER",
    "NUM_COLS",
    "NUM_ROWS",
    "OFFSETS",
    "READ",
    "ROW_OFFSET",
    "WRITE",
    "AccessLists",
    "Analysis",
    "CommandAttributes",
    "CommandKinds",
    "Findings",
    "Flow",
    "Layout",
    "Lifetimes",
    "PairLists",
    "Reads",
    "SubmatrixAccesses",
    "Uses",
    "Variables",
    "analyze",
    "columns_of_kind",
    "contain",
    "matrix_accesses",
    "memos",
    "overlap",
    "variable_accesses",
]
