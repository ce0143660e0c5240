"""Pass: a component that runs backward many times updates its parameters once."""

from __future__ import annotations

import itertools

import numpy as np
from nnet3_computation import analysis, computation
from nnet3_computation import commands as c
from nnet3_computation.arrays import Ids, splits_of, where
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_optimizer.debug_info import concatenated
from nnet3_optimizer.draft import Draft, Edit


def consolidate_model_update(draft: Draft) -> Draft:
    """Gathers the operands of the Backprop commands of a component for one update at the end.

    In recurrent networks a component runs once for each time. The update of its parameters is a sum
    over all rows of all times, and one product of large matrices is faster than many of small ones.

    1. The component is updatable and simple (its update is a sum over rows), and has no memo.
    2. It has more than one Backprop. Each becomes BackpropNoModelUpdate, or goes away if it only
       made the update. Before each, the rows that it reads are copied into common matrices, one
       below the other.
    3. One Backprop on these matrices, without input derivative, follows the last of the commands,
       so that the matrices can be freed before the backward pass goes on.

    `merge_variables` then removes most of the copies: values are written where they are gathered.
    With natural gradient the rows of all times are preconditioned together.

    Before::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m1 = accept input
        m2 = zeros
        m2(0:1, :) = affine.propagate(m1(0:1, :))
        m2(2:3, :) = affine.propagate(m1(2:3, :))
        provide output = m2
        segment end
        m3 = accept output
        - = affine.backprop(m3(2:3, :), input m1(2:3, :))
        - = affine.backprop(m3(0:1, :), input m1(0:1, :))
        free m1
        free m3

    After::

        m1 = 4 x 4
        m2 = 4 x 4
        m3 = 4 x 4
        m4 = 4 x 4
        m5 = 4 x 4
        m1 = accept input
        m4 = zeros
        m5 = zeros
        m2 = zeros
        m2(0:1, :) = affine.propagate(m1(0:1, :))
        m2(2:3, :) = affine.propagate(m1(2:3, :))
        provide output = m2
        segment end
        m3 = accept output
        m4(0:1, :) = m3(2:3, :)
        m5(0:1, :) = m1(2:3, :)
        m4(2:3, :) = m3(0:1, :)
        m5(2:3, :) = m1(0:1, :)
        - = affine.backprop(m4, input m5)
        free m4
        free m5
        free m1
        free m3
    """
    if c.is_loop(draft.table):
        return draft
    at = draft.positions(c.Backprop.OPCODE)
    component = draft.table[at, c.FIRST_OPERAND_COLUMN]
    properties = draft.component_properties[component]
    wanted = int(Property.UPDATABLE | Property.SIMPLE)
    fits = (properties & (wanted | int(Property.USES_MEMO))) == wanted
    at, component = at[fits], component[fits]
    repeated = where(np.bincount(component) > 1).tolist()
    if not repeated:
        return draft
    updates = [(number, at[component == number], _operands(draft, number)) for number in repeated]
    edit = Edit(draft)
    gathered = _gather(draft, edit, [(at, name) for _, at, names in updates for name in names])
    wholes = np.array([whole for whole, _ in gathered])
    for number, at, names in updates:
        own, gathered = gathered[: len(names)], gathered[len(names) :]
        for _, copies in own:
            edit.insert(at, copies)
        edit.table[at, c.OPCODE_COLUMN] = c.BackpropNoModelUpdate.OPCODE
        edit.delete(at[edit.table[at, c.columns(c.Backprop)["input_deriv"]] == 0])
        operands = dict(zip(names, [whole for whole, _ in own], strict=True))
        update = c.command_rows(c.Backprop, 1, component=number, **operands)
        edit.insert(int(at[-1]) + 1, update)
    _allocate(draft, edit, wholes)
    return edit.draft()


_ARGUMENTS = (
    ("output_deriv", Property.SIMPLE),
    ("input_value", Property.BACKPROP_NEEDS_INPUT),
    ("output_value", Property.BACKPROP_NEEDS_OUTPUT),
)
"""Operands that an update may read, and the property of the components that read them."""


def _operands(draft: Draft, component: int) -> list[str]:
    """Returns the names of the operands that the update of a component looks at."""
    properties = int(draft.component_properties[component])
    return [name for name, of in _ARGUMENTS if properties & int(of)]


def _gather(draft: Draft, edit: Edit, operands: list[tuple[Ids, str]]) -> list[tuple[int, c.Table]]:
    """Adds a matrix for each operand, to gather it in.

    Args:
        draft: The draft.
        edit: The changes.
        operands: Positions of Backprop commands, and the name of one of their operands.

    Returns:
        For each operand the submatrix that covers its matrix, and the commands that copy into it.
    """
    parts = np.concatenate([draft.table[at, c.columns(c.Backprop)[name]] for at, name in operands])
    sizes = np.array([len(at) for at, _ in operands])
    splits = splits_of(sizes)
    begins, bounds = splits[:-1], [*itertools.pairwise(splits.tolist())]
    places = draft.submatrices.take(parts, axis=0)
    matrix, rows = draft.layout.matrix_of.take(parts), places[:, analysis.NUM_ROWS].astype(np.int64)
    debug_info: list[computation.MatrixDebugInfo | None] = [None] * len(operands)
    if draft.debug_info:
        infos = [draft.debug_info[each] for each in matrix.tolist()]
        first_rows = places[:, analysis.ROW_OFFSET].astype(np.int64)
        has_all_rows = rows == draft.matrices[:, 0].take(matrix)
        debug_info = [
            concatenated(
                infos[begin:end],
                first_rows[begin:end],
                rows[begin:end],
                are_whole=bool(has_all_rows[begin:end].all()),
            )
            for begin, end in bounds
        ]
    totals, widths = np.add.reduceat(rows, begins), places[begins, analysis.NUM_COLS]
    new_sizes = zip(totals.tolist(), widths.tolist(), strict=True)
    numbers, wholes = edit.matrices([*new_sizes], debug_info)
    above = np.cumsum(rows) - rows
    places[:, analysis.MATRIX] = numbers.repeat(sizes)
    places[:, analysis.ROW_OFFSET] = above - above[begins].repeat(sizes)
    places[:, analysis.COL_OFFSET] = 0
    own = edit.submatrices(places)
    copies = c.command_rows(c.MatrixCopy, len(parts), alpha=1.0, output=own, input=parts)
    return [
        (whole, copies[begin:end])
        for whole, (begin, end) in zip(wholes.tolist(), bounds, strict=True)
    ]


_AT_THE_END = analysis.CommandKinds.of(c.DeallocMatrix, c.ProvideOutput)


def _allocate(draft: Draft, edit: Edit, wholes: Ids) -> None:
    """Allocates matrices at the beginning and frees them at the end."""
    inputs = where(draft.opcodes != c.AcceptInput.OPCODE)
    begin = int(inputs[0]) if len(inputs) else 0
    end = int(where(~_AT_THE_END.among(draft.opcodes))[-1]) + 1
    edit.insert(begin, c.command_rows(c.AllocMatrixZeroed, len(wholes), matrix=wholes))
    edit.insert(end, c.command_rows(c.DeallocMatrix, len(wholes), matrix=wholes))
