"""Compressed matrices: nothing touches them until they are decompressed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_computation.analysis import MATRIX
from nnet3_computation.checks import Subject
from nnet3_computation.commands import (
    ALPHA_COLUMN,
    SCHEMA,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    DecompressMatrix,
    alpha_value,
    keeps_sign_only,
)


class _Compression(NamedTuple):
    command: int
    compression_type: int
    alpha: float


def check_compression(subject: Subject) -> None:
    """Checks CompressMatrix and DecompressMatrix.

    1. `truncate` is 0 or 1.
    2. A matrix is compressed in the forward part and decompressed in the backward part; between the
       two nothing accesses it, and nothing is decompressed that was not compressed.
    3. If only signs are kept, the only later access is one backward pass of a RectifiedLinear,
       which needs only signs.
    """
    at = subject.positions(CompressMatrix, DecompressMatrix)
    if not len(at):
        return
    marker = int(subject.segment_ends[0]) if len(subject.segment_ends) else len(subject.table)
    lists = subject.analysis.matrix_accesses
    opcodes = subject.opcodes
    matrices = subject.computation.submatrices[subject.table[at, 2], MATRIX]
    for matrix in np.unique(matrices).tolist():
        packed: _Compression | None = None
        commands = lists[matrix][0].tolist()
        for place, command in enumerate(commands):
            if opcodes[command] == CompressMatrix.OPCODE:
                if packed is not None:
                    subject.fail(f"m{matrix} is compressed already, by c{packed.command}", command)
                packed = _compress(subject, command, marker)
            elif opcodes[command] == DecompressMatrix.OPCODE:
                if packed is None:
                    subject.fail(f"m{matrix} is not compressed", command)
                if command < marker:
                    subject.fail(f"m{matrix} is decompressed before the marker", command)
                if keeps_sign_only(packed.compression_type, packed.alpha):
                    _check_sign_use(subject, matrix, commands[place + 1 :], packed)
                packed = None
            elif packed is not None:
                subject.fail(
                    f"{subject.name(command)}: m{matrix} is accessed, but compressed since "
                    f"c{packed.command}",
                    command,
                )


def _compress(subject: Subject, command: int, marker: int) -> _Compression:
    matrix, compression_type, truncate = subject.table[command, 2:5].tolist()
    alpha = alpha_value(int(subject.table[command, ALPHA_COLUMN]))
    if truncate not in (0, 1):
        subject.fail(f"truncate = {truncate}, expected 0 or 1", command)
    if command > marker:
        subject.fail(f"{subject.describe(matrix)} is compressed after the marker", command)
    return _Compression(command, compression_type, alpha)


def _check_sign_use(subject: Subject, matrix: int, uses: list[int], packed: _Compression) -> None:
    wanted = f"m{matrix} keeps only signs since c{packed.command}: a RectifiedLinear backward pass"
    if not uses:
        subject.fail(f"{wanted} is expected, but nothing follows", packed.command)
    for command in uses:
        row = subject.table[command]
        command_type = SCHEMA.types[int(row[0])]
        submatrices = subject.computation.submatrices
        if command_type in (Backprop, BackpropNoModelUpdate):
            backprop = Backprop.from_row(row.tolist())
            kind = subject.component(backprop.component)[1].type
            others = [backprop.input_value, backprop.output_deriv, backprop.input_deriv]
            named = submatrices[others, MATRIX].tolist()
            if kind == "RectifiedLinearComponent" and matrix not in named:
                continue
        subject.fail(f"{subject.name(command)}: {wanted} is expected as its only use", command)
