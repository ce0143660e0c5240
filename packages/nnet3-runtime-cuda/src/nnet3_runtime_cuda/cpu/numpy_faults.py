"""Faults of NumPy, and other calls that give the right results.

Binding operations to their operands avoids them, so that runs pay nothing for it.
"""

from __future__ import annotations

import numpy as np

from nnet3_runtime_cuda.operations import Array

Operand = Array | float


def avoided(function: str, operands: tuple[Operand, ...]) -> tuple[str, tuple[Operand, ...]]:
    """The function and the operands, or a replacement if NumPy would be wrong.

    `negative` reads the wrong elements in NumPy 2.1.0 to 2.5.4, on any processor: where elements of
    the input lie 16 bytes apart for types of 4 bytes, or 64 bytes for types of 8, and those of the
    output are apart too, it reads contiguous elements. Pull request 27027 of numpy/numpy introduced
    the fault: the choice of the vector loop for contiguous inputs compares their stride, in
    elements, with the size of an element instead of 1. NumPy 2.5.5 is right. The product with -1 is
    exact; it takes some nanoseconds more, so other operands keep `negative`.

    Args:
        function: NumPy's name for it.
        operands: Arrays and numbers.
    """
    if function == "negative":
        (operand,) = operands
        if isinstance(operand, np.ndarray) and operand.itemsize**2 in operand.strides:
            return "multiply", (operand, -1)
    return function, operands
