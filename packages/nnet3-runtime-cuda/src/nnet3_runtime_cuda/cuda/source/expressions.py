"""C++ expressions of element-wise functions, and of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

FUNCTIONS: dict[str, Callable[..., str]] = {
    "copy": lambda a: a,
    "positive": lambda a: a,
    "negative": lambda a: f"-({a})",
    "add": lambda a, b: f"{a} + {b}",
    "subtract": lambda a, b: f"{a} - {b}",
    "multiply": lambda a, b: f"{a} * {b}",
    "divide": lambda a, b: f"{a} / {b}",
    "maximum": lambda a, b: f"larger({a}, {b})",
    "minimum": lambda a, b: f"smaller({a}, {b})",
    "greater": lambda a, b: f"{a} > {b} ? 1 : 0",
    "equal": lambda a, b: f"{a} == {b} ? 1 : 0",
    "square": lambda a: f"{a} * {a}",
    "exp": lambda a: f"exp_({a})",
    "log": lambda a: f"log_({a})",
    "tanh": lambda a: f"tanh_({a})",
    "sqrt": lambda a: f"sqrt_({a})",
    "ceil": lambda a: f"ceil_({a})",
    "rint": lambda a: f"rint_({a})",
    "bit": lambda a, b: f"{a} >> {b} & 1",
}
"""Element-wise functions in C++; most have NumPy's names."""

OWN_TYPE = frozenset({"copy", "bit"})
"""Functions that compute in the type of the operands, whatever the type of the result."""


def wider(types: list[str]) -> str:
    """The type for the arithmetic, given the types of operands and result."""
    if "double" in types:
        return "double"
    if "float" in types:
        return "float"
    return "long long" if "long long" in types else "int"


def literal(value: float, c_type: str) -> str:
    """A number in C++."""
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value}")
    if c_type == "float":
        text = f"{np.float32(value)!r}".removeprefix("np.float32(").removesuffix(")") + "f"
    elif c_type == "double":
        text = repr(float(value))
    else:
        text = str(int(value))
    return f"({text})" if text.startswith("-") else text


def offset(strides: tuple[int, ...], indexes: tuple[str, ...]) -> str:
    """The sum of index times stride."""
    terms = [
        index if stride == 1 else f"{index} * {stride}"
        for stride, index in zip(strides, indexes, strict=True)
        if stride and index != "0"
    ]
    return " + ".join(terms) or "0"
