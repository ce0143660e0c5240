"""Element-wise operations as plain loops."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import attrs
import numpy as np
from operation_cases import (
    BOOL,
    BYTE,
    CASES,
    DOUBLE,
    INT64,
    SINGLE,
    Case,
    Result,
    Trial,
    broadcast,
    case,
    trial,
)
from operation_places import Draw, Place

MIXED = (
    (SINGLE, BOOL, SINGLE),
    (DOUBLE, BOOL, DOUBLE),
    (DOUBLE, SINGLE, DOUBLE),
    (SINGLE, DOUBLE, SINGLE),
)
"""Types of two operands and their output, if they differ."""

STORED = tuple(np.dtype(kind) for kind in (np.int8, np.uint8, np.int16, np.uint16))
"""Types of compressed matrices."""


def _exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _log(a: float) -> float:
    if a == 0.0:
        return -math.inf
    return math.log(a) if a > 0.0 else math.nan


def _divide(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    if a == 0.0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, math.copysign(1.0, a) * math.copysign(1.0, b))


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda a: float(function(a)) if math.isfinite(a) else a


def largest_of(a: float, b: float) -> float:
    """The larger number; NaN if either is."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _smallest(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else min(a, b)


UNARY: dict[str, Callable[[float], float]] = {
    "exp": _exp,
    "log": _log,
    "tanh": math.tanh,
    "sqrt": lambda a: math.sqrt(a) if a >= 0.0 else math.nan,
    "square": lambda a: a * a,
    "ceil": _whole(math.ceil),
    "round": _whole(round),
    "negative": operator.neg,
    "is_positive": lambda a: float(a > 0.0),
}
NOT_EXACT = ("exp", "log", "tanh")
BINARY: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": _divide,
    "maximum": largest_of,
    "minimum": _smallest,
    "greater": operator.gt,
    "equal": operator.eq,
}


def _operand_shape(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that can be broadcast to another one."""
    own = tuple(1 if draw.chance(0.15) else length for length in shape)
    return own[draw.random.randrange(len(own)) :] if draw.chance(0.15) else own


def _unary(name: str) -> Case:
    function = UNARY[name]

    def make(draw: Draw) -> Trial:
        shape = draw.shape(draw.random.randint(1, 3))
        a = draw.place(shape)
        if name == "is_positive":
            draw.replace(a, [abs(value) if value == value else 1.0 for value in a.values])
        out = a if draw.chance(0.3) else draw.place(shape, kind="none")
        result = Result.exact(out, [function(value) for value in a.values])
        if name in NOT_EXACT:
            epsilon = float(np.finfo(out.dtype).eps)
            least = float(np.finfo(out.dtype).tiny)
            errors = [4 * epsilon * abs(v) + least if v - v == 0.0 else 0.0 for v in result.values]
            result = attrs.evolve(result, errors=errors)
        return trial(name, a, result=result)

    return make


def _binary(name: str) -> Case:
    function = BINARY[name]

    def make(draw: Draw) -> Trial:
        shape = draw.shape(draw.random.randint(1, 3))
        types = draw.random.choice(MIXED) if draw.chance(0.2) else (draw.dtype,) * 3
        is_flag = name in ("greater", "equal")
        operands: list[Place | float] = []
        if is_flag or draw.chance(0.7):
            out = draw.place(shape, BOOL if is_flag else types[2], kind="none")
        else:
            out = draw.place(shape, types[2])
            operands.append(out)
        for dtype in types[len(operands) : 2]:
            is_number = len(set(types)) == 1 and draw.chance(0.2)
            is_number = is_number and not any(isinstance(a, float) for a in operands)
            number, own = draw.number(), _operand_shape(draw, shape)
            operands.append(number if is_number else draw.place(own, dtype, layout="read"))
        if types[0] == types[1] and draw.chance(0.5):
            operands.reverse()
        if types == (SINGLE,) * 3 and not is_flag and draw.chance(0.1):
            stored = draw.place(shape, draw.random.choice(STORED))
            operands = [stored, draw.number()]
        lists = [
            broadcast(a, shape) if isinstance(a, Place) else [a] * len(out.positions)
            for a in operands
        ]
        result = Result.exact(out, [function(a, b) for a, b in zip(*lists, strict=True)])
        return trial(name, *operands, result=result)

    return make


for _name in UNARY:
    CASES[_name] = _unary(_name)
for _name in BINARY:
    CASES[_name] = _binary(_name)


@case("apply")
def _apply(draw: Draw) -> Trial:
    """A function by NumPy's name."""
    shape = draw.shape(2)
    a, b = (draw.place(shape, layout="read") for _ in range(2))
    out = draw.place(shape, kind="none")
    result = Result.exact(out, [largest_of(x, y) for x, y in zip(a.values, b.values, strict=True)])
    return Trial(lambda tape: tape.apply("maximum", a.array, b.array, out=out.array), (result,))


@case("convert")
def _convert(draw: Draw) -> Trial:
    shape = draw.shape(2)
    source, target = draw.random.choice(
        [(SINGLE, DOUBLE), (DOUBLE, SINGLE), (DOUBLE, BOOL), (BOOL, SINGLE)]
        + [pair for stored in STORED for pair in ((SINGLE, stored), (stored, SINGLE))]
    )
    a = draw.place(shape, source, kind="any" if target.kind == "f" else "limited")
    if target.kind == "u":
        draw.replace(a, [abs(value) for value in a.values])
    out = draw.place(shape, target, kind="none")
    return trial("convert", a, result=Result.exact(out, a.values))


@case("copy")
def _copy(draw: Draw) -> Trial:
    """Copies from another array, from other columns of the same rows, of a number, or of a type."""
    shape = draw.shape(draw.random.randint(1, 3))
    if draw.chance(0.3):
        rows, columns = draw.shape(2)
        shift = draw.few(0)
        dtype = draw.random.choice((draw.dtype, draw.dtype, INT64, BYTE))
        whole = draw.place((rows, columns + shift), dtype)
        shifts = [0, shift]
        draw.random.shuffle(shifts)
        a, out = (whole.part(1, start, columns) for start in shifts)
        return trial("copy", a, result=Result.exact(out, a.values))
    types = [(draw.dtype, draw.dtype)] * 3 + [
        (SINGLE, DOUBLE),
        (BYTE, INT64),
        (np.dtype(np.uint64), BYTE),
        (BOOL, SINGLE),
    ]
    source, target = draw.random.choice(types)
    a = draw.place(_operand_shape(draw, shape), source, layout="read")
    if source == np.uint64:
        draw.replace(a, [value % 256 for value in a.values])
    out = draw.place(shape, target, kind="none")
    if target.kind == "f" and draw.chance(0.1):
        number = draw.number()
        return trial("copy", number, result=Result.exact(out, [number] * len(out.positions)))
    return trial("copy", a, result=Result.exact(out, broadcast(a, shape)))


@case("fill")
def _fill(draw: Draw) -> Trial:
    out = draw.place(draw.shape(draw.random.randint(1, 3)), kind="none")
    number = draw.number()
    return trial("fill", number, result=Result.exact(out, [number] * len(out.positions)))


@case("add_scaled")
def _add_scaled(draw: Draw) -> Trial:
    shape = draw.shape(2)
    layout = draw.random.choice(("any", "contiguous"))
    a, out = (draw.place(shape, kind="finite", layout=layout) for _ in range(2))
    factor = draw.random.choice((1.0, -1.0, 0.5, -2.75))
    terms = [(y, factor * x) for x, y in zip(a.values, out.values, strict=True)]
    return trial("add_scaled", a, factor, result=Result.summed(out, terms))


@case("pack_signs")
def _pack_signs(draw: Draw) -> Trial:
    rows, columns = draw.shape(2)
    width = -(-columns // 8)
    a = draw.place((rows, columns), layout=draw.random.choice(("any", "contiguous")))
    if columns > 1 and draw.chance(0.3):
        # The bits go where the values were; each row needs fewer bytes.
        size = a.dtype.itemsize
        start = min(a.positions, default=0) * size
        bytes_of_a = a.memory.view(np.uint8)
        out = Place(bytes_of_a, (rows, width), (width, 1), start)
        draw.places = [out]
    else:
        out = draw.place((rows, width), BYTE, kind="none")
    values = a.values
    packed = [
        sum(
            (values[row * columns + 8 * byte + bit] > 0.0) << bit
            for bit in range(8)
            if 8 * byte + bit < columns
        )
        for row in range(rows)
        for byte in range(width)
    ]
    return trial("pack_signs", a, result=Result.exact(out, packed))


@case("unpack_signs")
def _unpack_signs(draw: Draw) -> Trial:
    rows, columns = draw.shape(2)
    width = -(-columns // 8)
    out = draw.place((rows, columns), kind="none")
    if columns > 1 and rows and draw.chance(0.3):
        place = min(out.positions) * out.dtype.itemsize
        packed = Place(out.memory.view(np.uint8), (rows, width), (width, 1), place)
        packed.memory[packed.positions] = draw.values(rows * width, BYTE, "any")
    else:
        packed = draw.place((rows, width), BYTE)
    stored = packed.values
    bits = [
        stored[row * width + column // 8] >> column % 8 & 1
        for row in range(rows)
        for column in range(columns)
    ]
    return trial("unpack_signs", packed, result=Result.exact(out, bits))
