"""Pass: commands whose results nobody looks at go away."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import (
    SCHEMA,
    Backprop,
    NoOperation,
    Propagate,
)
from nnet3_compiler.declaration import OPCODE_COLUMN, OperandKind
from nnet3_optimizer.analysis.csr import Bools
from nnet3_optimizer.analysis.flow import Flow
from nnet3_optimizer.analysis.variables import Table
from nnet3_optimizer.loops import is_loop
from nnet3_optimizer.operands import columns
from nnet3_optimizer.passes.unused_matrices import SIZING, sizing_without_use
from nnet3_optimizer.program import Program


def remove_dead_commands(program: Program) -> Program:
    """Removes commands that only compute what is never used, and matrices without use.

    1. A command is needed if it has side effects, or if a needed command reads a variable that it
       wrote before anything else wrote it as a whole, or uses a memo that it made.
    2. Allocation, deallocation and the like are needed while any needed command names the matrix.
    3. A Backprop that is needed for its model update alone does not compute an input derivative.
    4. Nothing is removed from loops, in which a later round may read what an earlier one wrote.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m3 = zeros
        m2 = affine.propagate(m1)
        m3 = affine2.propagate(m2)
        provide output = m2
        segment end
        free m1
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        free m1
    """
    if is_loop(program.table):
        return program
    flow = program.analysis.flow
    without = _without_unused_derivatives(program, flow)
    if without is not program:
        program, flow = without, without.analysis.flow
    needed = _needed(program, flow)
    if needed.all():
        return program
    table = program.table.copy()
    _drop_unused_memos(table, needed)
    return attrs.evolve(program, table=table[needed])


def _needed(program: Program, flow: Flow) -> Bools:
    """Returns which commands are needed, (C,) bool."""
    is_sizing = SIZING.among(program.opcodes)
    is_nothing = program.opcodes == NoOperation.OPCODE
    needed = program.analysis.has_side_effects | is_sizing
    candidates = ~needed & ~is_nothing
    if (candidates & ~flow.feeding(len(needed))).any():
        _spread(flow, needed)
    else:
        # Nothing ends in vain, so nothing that leads there does.
        needed |= candidates
    return needed & ~sizing_without_use(program, needed)


def _spread(flow: Flow, needed: Bools) -> None:
    """Marks all that needed commands need."""
    reader, writer = flow
    order = np.argsort(reader, kind="stable")
    begins = np.searchsorted(reader[order], np.arange(len(needed) + 1)).tolist()
    writers = writer[order].tolist()
    flags = bytearray(needed.tobytes())
    for command in range(len(needed) - 1, -1, -1):
        if flags[command]:
            for each in writers[begins[command] : begins[command + 1]]:
                flags[each] = 1
    needed[:] = np.frombuffer(bytes(flags), dtype=np.bool_)


def _drop_unused_memos(table: Table, needed: Bools) -> None:
    """Lets no Propagate make a memo that only removed commands used."""
    kinds = SCHEMA.kind[table[:, OPCODE_COLUMN]]
    is_memo = (kinds == OperandKind.MEMO) & (table != 0)
    makes = is_memo & (table[:, [OPCODE_COLUMN]] == Propagate.OPCODE)
    still_used = np.unique(table[is_memo & ~makes & needed[:, None]])
    table[makes & ~np.isin(table, still_used)] = 0


def _without_unused_derivatives(program: Program, flow: Flow) -> Program:
    """Returns the program with input_deriv = 0 where a Backprop computes it for nobody."""
    at = program.positions(Backprop.OPCODE)
    column = columns(Backprop)["input_deriv"]
    at = at[program.analysis.has_side_effects[at] & (program.table[at, column] > 0)]
    unused = at[~flow.feeding(len(program.table))[at]]
    if not len(unused):
        return program
    table = program.table.copy()
    table[unused, column] = 0
    return attrs.evolve(program, table=table)
