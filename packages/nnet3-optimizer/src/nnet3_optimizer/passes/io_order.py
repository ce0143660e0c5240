"""Pass: inputs are accepted at the beginning of a segment, and outputs provided at its end."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import AcceptInput, NoOperationMarker, ProvideOutput
from nnet3_optimizer.editing import with_label_found
from nnet3_optimizer.program import Program


def consolidate_io(program: Program) -> Program:
    """Moves AcceptInput to the beginning of its segment and ProvideOutput to its end.

    Nothing can access a matrix before it is accepted, and a matrix that is provided keeps its
    elements to the end of the segment (see `check_allocation` and `merge_variables`): so neither
    move changes anything, and whoever runs the computation can hand over all inputs of a segment
    at once. Before::

        m1 = accept input
        m2 = affine.propagate(m1)
        provide output = m2
        m3 = accept ivector
        segment end

    After::

        m1 = accept input
        m3 = accept ivector
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
    """
    opcodes = program.opcodes
    is_marker = opcodes == NoOperationMarker.OPCODE
    segment = np.cumsum(is_marker) - is_marker
    rank = np.ones(len(opcodes), dtype=np.int64)
    rank[opcodes == AcceptInput.OPCODE] = 0
    rank[opcodes == ProvideOutput.OPCODE] = 2
    rank[is_marker] = 3
    order = np.argsort(segment * 4 + rank, kind="stable")
    if (order[1:] > order[:-1]).all():
        return program
    return attrs.evolve(program, table=with_label_found(program.table[order]))
