"""The types of compression that commands name exist, with their ranges."""

from __future__ import annotations

import numpy as np

from nnet3_computation.checks.subject import Subject
from nnet3_computation.commands import ALPHA_COLUMN, CompressMatrix
from nnet3_computation.commands.compression import COMPRESSED_BITS, ONE_BIT, keeps_sign_only

LARGEST_RANGE = 1000.0


def check_compression_types(subject: Subject) -> None:
    """Checks that the types of compression exist, and have ranges that fit them.

    A range is between 0 and 1000. It is 0 for one bit, and otherwise only if a type can keep signs
    alone.
    """
    at = subject.positions(CompressMatrix)
    types = subject.operand(at, CompressMatrix, "compression_type")
    known = sorted(COMPRESSED_BITS)
    subject.require(
        np.isin(types, known),
        at,
        lambda i: f"compression_type = {types[i]}, expected one of {known}",
    )
    alphas = np.ascontiguousarray(subject.table[at, ALPHA_COLUMN], np.int32).view(np.float32)
    subject.require(
        (alphas >= 0.0) & (alphas <= LARGEST_RANGE),
        at,
        lambda i: f"alpha = {alphas[i]:g}, expected a range from 0 to {LARGEST_RANGE:g}",
    )
    of_signs = np.isin(types, [each for each in known if keeps_sign_only(each, 0.0)])
    subject.require(
        of_signs | (alphas != 0.0),
        at,
        lambda i: f"alpha = 0 is not allowed for compression_type {types[i]}",
    )
    subject.require(
        (types != ONE_BIT) | (alphas == 0.0),
        at,
        lambda i: f"alpha = {alphas[i]:g}, expected 0: one bit has no range",
    )
