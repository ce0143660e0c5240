"""The types of compression that commands name exist."""

from __future__ import annotations

import numpy as np

from nnet3_computation.checks.subject import Subject
from nnet3_computation.commands import CompressMatrix
from nnet3_computation.commands.compression import COMPRESSED_BITS


def check_compression_types(subject: Subject) -> None:
    """Checks that the types of compression exist."""
    at = subject.positions(CompressMatrix)
    types = subject.operand(at, CompressMatrix, "compression_type")
    known = sorted(COMPRESSED_BITS)
    subject.require(
        np.isin(types, known),
        at,
        lambda i: f"compression_type = {types[i]}, expected one of {known}",
    )
