"""Checks that a computation makes sense, command by command and as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from nnet3_computation import ComputationRequest, arrays
from nnet3_computation import commands as c
from nnet3_computation.analysis import MATRIX, READ, WRITE, CommandKinds
from nnet3_computation.checks import (
    COMPUTING,
    SUMS,
    Subject,
    check_allocation,
    check_components,
    check_compression,
    check_freed,
    check_memory_plan,
    check_memos,
    check_network,
    check_rows,
    check_world,
    run_checks,
)
from nnet3_computation.computation import NnetComputation

from nnet3_optimizer import network_checks

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def check_computation(
    nnet: Nnet,
    computation: NnetComputation,
    request: ComputationRequest | Sequence[ComputationRequest] | None = None,
    *,
    check_rewrite: bool = False,
    check_unused: bool = True,
) -> None:
    """Checks that a computation makes sense for a network.

    Args:
        nnet: The network that the computation was compiled for.
        computation: The computation, optimized or not.
        request: The request that it should be for, or the request of each segment, if there are
            several; the check compares it with the fingerprint. None: it is not compared.
        check_rewrite: Whether to check as well that no element changes after it was read, and that
            derivatives are sums of derivatives. This holds for computations that have not been
            optimized.
        check_unused: Whether to check as well that every result is used.

    Raises:
        CheckError: a ComputationError that names the check, the command by number and text, the
            operand, the value and what was expected, and shows the neighbouring commands.
        ComputationError: The computation was compiled for another request.
    """
    if request is not None:
        requests = [request] if isinstance(request, ComputationRequest) else request
        computation.check_request(*requests)
    checks = CHECKS + (UNUSED,) * check_unused + COMPILED * check_rewrite
    run_checks(checks, Subject.of(nnet, computation))


def check_order(subject: Subject) -> None:
    """Checks that components run forward before the marker and backward after it.

    1. There is a marker.
    2. With one marker: Propagate and StoreStats come before it, both kinds of Backprop after it.
    3. With several markers (a computation in several forward segments) nothing runs backward.
    """
    if not len(subject.segment_ends):
        subject.fail("there is no NoOperationMarker: the forward computation has no end")
    end = int(subject.segment_ends[0])
    backward = subject.positions(c.Backprop, c.BackpropNoModelUpdate)
    if len(subject.segment_ends) > 1:
        nowhere = np.zeros(len(backward), dtype=np.bool_)
        subject.require(nowhere, backward, "runs backward in a computation of several segments")
        return
    forward = subject.positions(c.Propagate, c.StoreStats)
    subject.require(forward < end, forward, f"runs forward after the marker, c{end}")
    subject.require(backward > end, backward, f"runs backward before the marker, c{end}")


_TAKING = (c.AllocMatrixUndefined.OPCODE, c.AllocMatrixZeroed.OPCODE, c.AcceptInput.OPCODE)


def check_loop(subject: Subject) -> None:
    """Checks a computation that goes back to a label.

    1. If there is a label, a GotoLabel goes to it. (`check_rounds` of the compiler looks at
       GotoLabel itself.)
    2. At the end of a round, the same matrices are allocated as at the label. Matrices that the
        next round allocates anew do not count: inputs (AcceptInput), and outputs that the user has
        taken.
    """
    gotos, labels = subject.positions(c.GotoLabel), subject.positions(c.NoOperationLabel)
    if not len(gotos):
        if len(labels):
            subject.fail("there is a label, but nothing goes to it", int(labels[0]))
        return
    label = int(subject.table[gotos[0], 2])
    at_label, at_end = _held(subject, label), _held(subject, int(gotos[0]))
    lifetimes = subject.analysis.lifetimes
    renewed = {
        matrix
        for matrix in at_end - at_label
        if lifetimes.is_output[matrix] or lifetimes.is_input[matrix]
    }
    if at_end - renewed != at_label:
        lost, extra = sorted(at_label - at_end), sorted(at_end - renewed - at_label)
        faults = [f"m{each} is allocated at the label, but not at the end" for each in lost[:1]]
        faults += [f"m{each} is allocated at the end, but not at the label" for each in extra[:1]]
        subject.fail(f"GotoLabel: {' and '.join(faults)}", int(gotos[0]))


def _held(subject: Subject, until: int) -> set[int]:
    """Returns the matrices that are allocated before a command."""
    held: set[int] = set()
    submatrices = subject.computation.submatrices[:, MATRIX].tolist()
    for row in subject.table[:until].tolist():
        opcode, first, second = row[0], row[2], row[3]
        if opcode in _TAKING:
            held.add(submatrices[first])
        elif opcode == c.DeallocMatrix.OPCODE:
            held.discard(submatrices[first])
        elif opcode == c.SwapMatrix.OPCODE:
            held.discard(submatrices[second])
            held.add(submatrices[first])
    return held


_IDLE = CommandKinds.of(
    c.AllocMatrixUndefined, c.AllocMatrixZeroed, c.DeallocMatrix, c.SwapMatrix, c.NoOperation
)
"""Commands that compute nothing."""


def check_undefined(subject: Subject) -> None:
    """Checks that no variable is read before it is written.

    The first access to each variable must be a pure write. A compression may include undefined
    elements: only a later read of them matters.
    """
    lists = subject.analysis.variable_accesses
    begins = arrays.where(lists.is_accessed)
    first = lists.splits[begins]
    command = lists.command[first]
    defined = lists.access[first] == WRITE
    defined |= subject.opcodes[command] == c.CompressMatrix.OPCODE
    if not defined.all():
        which = np.flatnonzero(~defined)
        worst = which[np.argmin(command[which])]
        variable = subject.analysis.variables.describe(int(begins[worst]))
        subject.fail(
            f"{subject.name(int(command[worst]))}: {variable} is read, but nothing wrote it before",
            int(command[worst]),
        )


def check_unused_results(subject: Subject) -> None:
    """Checks that every result is used.

    1. A command without side effects writes something that another command reads, or makes a memo
       that another command uses.
    2. No value is overwritten before a command reads it.

    Loops are left out: a later round may read what an earlier one wrote.
    """
    if subject.is_loop:
        return
    analysis = subject.analysis
    is_idle = _IDLE.among(subject.opcodes)
    at = arrays.where(~analysis.feeds & ~analysis.has_side_effects & ~is_idle)
    if len(at):
        subject.fail(f"{subject.name(int(at[0]))}: nothing reads the result", int(at[0]))
    _check_overwritten(subject)


def _check_overwritten(subject: Subject) -> None:
    lists = subject.analysis.variable_accesses
    overwrites = (lists.access[1:] == WRITE) & ((lists.access[:-1] & WRITE) != 0)
    overwrites &= lists.follows[1:]
    if not overwrites.any():
        return
    first = arrays.where(overwrites)
    first = first[COMPUTING.among(subject.opcodes[lists.command[first]])]
    if len(first):
        worst = int(first[np.argmin(lists.command[first + 1])])
        variable = subject.analysis.variables.describe(int(lists.thing[worst]))
        command = int(lists.command[worst + 1])
        subject.fail(
            f"{subject.name(command)}: {variable} is overwritten, but nothing has read what "
            f"c{lists.command[worst]} wrote there",
            command,
        )


def check_rewrite_after_read(subject: Subject) -> None:
    """Checks that no variable is written after it was only read.

    This holds for the output of the compiler; optimized computations use memory again.
    """
    lists = subject.analysis.variable_accesses
    reads = np.where(lists.access == READ, np.arange(len(lists.access)), len(lists.access))
    accessed = np.flatnonzero(lists.is_accessed)
    if not len(accessed):
        return
    first_read = np.full(len(lists.splits) - 1, len(lists.access), dtype=np.int64)
    first_read[accessed] = np.minimum.reduceat(reads, lists.splits[:-1][accessed])
    owner = np.repeat(np.arange(len(lists.splits) - 1), np.diff(lists.splits))
    late = ((lists.access & WRITE) != 0) & (np.arange(len(owner)) > first_read[owner])
    if late.any():
        places = np.flatnonzero(late)
        worst = int(places[np.argmin(lists.command[places])])
        variable = int(owner[worst])
        reader = int(lists.command[first_read[variable]])
        subject.fail(
            f"{subject.name(int(lists.command[worst]))}: "
            f"{subject.analysis.variables.describe(variable)} is changed after c{reader} read it, "
            "which is not expected before optimization",
            int(lists.command[worst]),
        )


def check_direction(subject: Subject) -> None:
    """Checks that the compiler's copies and sums keep values and derivatives apart.

    1. After the marker they read only matrices that were written after it: derivatives. (Optimized
       computations also gather values for model updates.)
    2. No command writes into a matrix that the user gives.
    """
    if len(subject.segment_ends) != 1:
        return
    marker = int(subject.segment_ends[0])
    accesses = subject.analysis.submatrix_accesses
    matrix = subject.computation.submatrices[accesses.submatrix, MATRIX]
    opcodes = subject.opcodes[accesses.command]
    first, _ = subject.analysis.matrix_use
    wrong = ((accesses.access & READ) != 0) & (accesses.command > marker) & SUMS.among(opcodes)
    wrong &= first[matrix] < marker
    written = ((accesses.access & WRITE) != 0) & subject.analysis.lifetimes.is_input[matrix]
    for faults, text in (
        (
            wrong,
            "is read, which was written before the marker, but derivatives are sums of derivatives",
        ),
        (written & COMPUTING.among(opcodes), "is written, but the user gives it"),
    ):
        subject.require(
            ~faults,
            accesses.command,
            lambda i, text=text: f"{subject.describe(int(accesses.submatrix[i]))} {text}",  # type: ignore[misc]
        )


def check_compressed_values(subject: Subject) -> None:
    """Checks CompressMatrix and DecompressMatrix, besides what `check_compression` does.

    1. `truncate` is 0 or 1.
    2. A matrix is compressed in the forward part and decompressed in the backward part.
    3. If only signs are kept, the only later access is one backward pass of a RectifiedLinear,
       which needs only signs.
    """
    at = subject.positions(c.CompressMatrix, c.DecompressMatrix)
    if not len(at):
        return
    marker = int(subject.segment_ends[0]) if len(subject.segment_ends) else len(subject.table)
    lists = subject.analysis.matrix_accesses
    opcodes = subject.opcodes
    matrices = subject.computation.submatrices[subject.table[at, 2], MATRIX]
    for matrix in np.unique(matrices).tolist():
        packed, only_signs = 0, False  # the command that compressed it
        commands = lists[matrix][0].tolist()
        for place, command in enumerate(commands):
            if opcodes[command] == c.CompressMatrix.OPCODE:
                packed, only_signs = command, _keeps_signs(subject, command, marker)
            elif opcodes[command] == c.DecompressMatrix.OPCODE:
                if command < marker:
                    subject.fail(f"m{matrix} is decompressed before the marker", command)
                if only_signs:
                    _check_sign_use(subject, matrix, commands[place + 1 :], packed)


def _keeps_signs(subject: Subject, command: int, marker: int) -> bool:
    """Checks a CompressMatrix; returns whether it keeps only signs."""
    matrix, compression_type, truncate = subject.table[command, 2:5].tolist()
    alpha = c.alpha_value(int(subject.table[command, c.ALPHA_COLUMN]))
    if truncate not in (0, 1):
        subject.fail(f"truncate = {truncate}, expected 0 or 1", command)
    if command > marker:
        subject.fail(f"{subject.describe(matrix)} is compressed after the marker", command)
    return c.keeps_sign_only(compression_type, alpha)


def _check_sign_use(subject: Subject, matrix: int, uses: list[int], packed: int) -> None:
    wanted = f"m{matrix} keeps only signs since c{packed}: a RectifiedLinear backward pass"
    if not uses:
        subject.fail(f"{wanted} is expected, but nothing follows", packed)
    for command in uses:
        row = subject.table[command]
        command_type = c.SCHEMA.types[int(row[0])]
        submatrices = subject.computation.submatrices
        if command_type in (c.Backprop, c.BackpropNoModelUpdate):
            backprop = c.Backprop.from_row(row.tolist())
            kind = subject.component(backprop.component)[1].type
            others = [backprop.input_value, backprop.output_deriv, backprop.input_deriv]
            named = submatrices[others, MATRIX].tolist()
            if kind == "RectifiedLinearComponent" and matrix not in named:
                continue
        subject.fail(f"{subject.name(command)}: {wanted} is expected as its only use", command)


Check = tuple[str, Callable[[Subject], None]]
"""The name of a check, and a function that fails if a computation does not pass it."""

CHECKS: tuple[Check, ...] = (
    ("network", check_network),
    ("components", check_components),
    ("rows", network_checks.check_scales),
    ("rows", check_rows),
    ("rows", network_checks.check_backward_lists),
    ("order", check_order),
    ("world", check_world),
    ("loop", check_loop),
    ("allocation", check_allocation),
    ("allocation", check_freed),
    ("undefined", check_undefined),
    ("memos", check_memos),
    ("balance", network_checks.check_balance),
    ("compression", check_compression),
    ("compression", check_compressed_values),
    ("debug info", network_checks.check_debug_info),
    ("memory plan", check_memory_plan),
)
"""The checks of every computation, in order: a check may rely on the checks before it."""

UNUSED = ("unused", check_unused_results)
"""Refuses correct but unnecessary commands, which a later pass would remove."""

COMPILED = (("rewrite", check_rewrite_after_read), ("direction", check_direction))
"""The checks that hold only for the output of the compiler."""
