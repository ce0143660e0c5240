"""The reads and writes of commands, as arrays: by submatrix, by matrix, and by variable."""

from nnet3_compiler.accesses.accesses import (
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
from nnet3_compiler.accesses.command_accesses import CommandAccesses
from nnet3_compiler.accesses.kinds import MEMO_COLUMN, CommandKinds, columns_of_kind, memos
from nnet3_compiler.accesses.layout import Layout
from nnet3_compiler.accesses.pair_lists import PairLists
from nnet3_compiler.accesses.variables import (
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
    "CommandAccesses",
    "CommandKinds",
    "Layout",
    "Lifetimes",
    "PairLists",
    "SubmatrixAccesses",
    "Variables",
    "columns_of_kind",
    "contain",
    "matrix_accesses",
    "memos",
    "overlap",
    "variable_accesses",
]
