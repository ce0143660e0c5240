"""Every operation of a tape by its definition.

A case draws the operands of a trial, and states the expected results: for each output its values,
and the allowed error of each. Definitions are computed from contiguous copies, exact functions in
double precision, others in extended precision where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from nnet3_runtime_cuda.cpu.tape import FEW_ROWS, NumpyTape
from nnet3_runtime_cuda.kernels.parameters import record_moments, record_row_range_sums
from operation_places import FLOATS, Draw, Place

SINGLE, DOUBLE = FLOATS
BOOL, BYTE, INT64 = (np.dtype(kind) for kind in (np.bool_, np.uint8, np.int64))
WIDE = np.longdouble

MIXED = (
    (SINGLE, BOOL, SINGLE),
    (DOUBLE, BOOL, DOUBLE),
    (DOUBLE, SINGLE, DOUBLE),
    (SINGLE, DOUBLE, SINGLE),
)
"""Types of two operands and their output, if they differ."""

STORED = tuple(np.dtype(kind) for kind in (np.int8, np.uint8, np.int16, np.uint16))
"""Types of compressed matrices."""

UNARY = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "square": np.square,
    "ceil": np.ceil,
    "round": np.rint,
    "negative": lambda a: 0.0 - a,
    "is_positive": lambda a: a > 0.0,
}
NOT_EXACT = ("exp", "log", "tanh")
BINARY = {
    name: getattr(np, name)
    for name in (
        *("add", "subtract", "multiply", "divide"),
        *("maximum", "minimum", "greater", "equal"),
    )
}


@attrs.frozen
class Result:
    """The expected values of an output.

    Attributes:
        place: The output.
        values: The expected elements.
        errors: The allowed error of each element.
    """

    place: Place
    values: np.ndarray
    errors: np.ndarray | float = 0.0

    @classmethod
    def exact(cls, place: Place, values: np.ndarray | float) -> Result:
        """Expects these values exactly, after rounding to the type."""
        return cls(place, np.broadcast_to(np.asarray(values).astype(place.dtype), place.shape))

    @classmethod
    def summed(cls, place: Place, terms: np.ndarray, axis: int) -> Result:
        """Expects sums of terms, added in any order."""
        epsilon = np.finfo(place.dtype).eps
        errors = epsilon * (terms.shape[axis] + 2) * np.abs(terms).sum(axis)
        sums = terms.sum(axis, dtype=WIDE)
        return cls(place, sums.reshape(place.shape), errors.reshape(place.shape))


@attrs.frozen
class Trial:
    """An operation with operands.

    Attributes:
        record: Records the operation.
        results: The expected results.
    """

    record: Callable[[NumpyTape], object]
    results: tuple[Result, ...]


def trial(name: str, *operands: object, result: Result) -> Trial:
    """A call of a tape's method with operands, and with the output as the last."""
    given = [each.array if isinstance(each, Place) else each for each in operands]
    return Trial(lambda tape: getattr(tape, name)(*given, result.place.array), (result,))


Case = Callable[[Draw], Trial]
CASES: dict[str, Case] = {}
"""The cases, by the name of the tape's method, or of another function that records."""


def case(*names: str) -> Callable[[Case], Case]:
    """Registers a function as the case of operations."""

    def register(function: Case) -> Case:
        CASES.update(dict.fromkeys(names, function))
        return function

    return register


# ---- element by element ----


def _operand_shape(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that can be broadcast to another one."""
    own = tuple(1 if draw.chance(0.15) else length for length in shape)
    return own[draw.random.randrange(len(own)) :] if draw.chance(0.15) else own


def _unary(name: str) -> Case:
    def make(draw: Draw) -> Trial:
        a = draw.place(draw.shape(draw.random.randint(1, 3)))
        if name == "is_positive":
            a.values = np.abs(np.where(np.isnan(a.values), 1.0, a.values))
        out = a if draw.chance(0.3) else draw.place(a.shape, kind="none")
        given = a.values.astype(WIDE if name in NOT_EXACT else DOUBLE)
        result = Result.exact(out, UNARY[name](given))
        if name in NOT_EXACT:
            limits = np.finfo(out.dtype)
            errors = 4.0 * limits.eps * np.abs(result.values) + limits.tiny
            finite = np.isfinite(result.values)
            result = attrs.evolve(result, errors=np.where(finite, errors, 0.0))
        return trial(name, a, result=result)

    return make


def _binary(name: str) -> Case:
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
            operands = [draw.place(shape, draw.random.choice(STORED)), draw.number()]
        given = [each.numbers if isinstance(each, Place) else each for each in operands]
        return trial(name, *operands, result=Result.exact(out, BINARY[name](*given)))

    return make


CASES.update({name: _unary(name) for name in UNARY} | {name: _binary(name) for name in BINARY})


@case("apply")
def _apply(draw: Draw) -> Trial:
    """A function by NumPy's name."""
    shape = draw.shape(2)
    a, b = (draw.place(shape, layout="read") for _ in range(2))
    out = draw.place(shape, kind="none")
    result = Result.exact(out, np.maximum(a.values, b.values))
    return Trial(lambda tape: tape.apply("maximum", a.array, b.array, out=out.array), (result,))


def _to_another_type(draw: Draw) -> Trial:
    shape = draw.shape(2)
    source, target = draw.random.choice(
        [(SINGLE, DOUBLE), (DOUBLE, SINGLE), (DOUBLE, BOOL), (BOOL, SINGLE)]
        + [pair for stored in STORED for pair in ((SINGLE, stored), (stored, SINGLE))]
    )
    a = draw.place(shape, source, kind="any" if target.kind == "f" else "limited")
    if target.kind == "u":
        a.values = np.abs(a.values)
    out = draw.place(shape, target, kind="none")
    return trial("copy", a, result=Result.exact(out, a.values))


@case("copy")
def _copy(draw: Draw) -> Trial:
    """Copies from another array, from other columns of the same rows, of a number, or of a type."""
    if draw.chance(0.3):
        return _to_another_type(draw)
    if draw.chance(0.3):
        rows, columns = draw.shape(2)
        shift = draw.few(0)
        dtype = draw.random.choice((draw.dtype, draw.dtype, INT64, BYTE))
        whole = draw.place((rows, columns + shift), dtype)
        starts = draw.random.sample([0, shift], 2)
        a, out = (whole.part(1, start, columns) for start in starts)
        return trial("copy", a, result=Result.exact(out, a.values))
    shape = draw.shape(draw.random.randint(1, 3))
    types = [(draw.dtype, draw.dtype)] * 3 + [
        (SINGLE, DOUBLE),
        (BYTE, INT64),
        (np.dtype(np.uint64), BYTE),
        (BOOL, SINGLE),
    ]
    source, target = draw.random.choice(types)
    a = draw.place(_operand_shape(draw, shape), source, layout="read")
    if source == np.uint64:
        a.values = a.values % np.uint64(256)
    out = draw.place(shape, target, kind="none")
    if target.kind == "f" and draw.chance(0.1):
        number = draw.number()
        return trial("copy", number, result=Result.exact(out, number))
    return trial("copy", a, result=Result.exact(out, a.values))


@case("fill")
def _fill(draw: Draw) -> Trial:
    out = draw.place(draw.shape(draw.random.randint(1, 3)), kind="none")
    number = draw.number()
    return trial("fill", number, result=Result.exact(out, number))


@case("add_scaled")
def _add_scaled(draw: Draw) -> Trial:
    shape = draw.shape(2)
    layout = draw.random.choice(("any", "contiguous"))
    a, out = (draw.place(shape, kind="finite", layout=layout) for _ in range(2))
    factor = draw.random.choice((1.0, -1.0, 0.5, -2.75))
    terms = np.stack([out.numbers, factor * a.numbers])
    return trial("add_scaled", a, factor, result=Result.summed(out, terms, 0))


@case("pack_signs")
def _pack_signs(draw: Draw) -> Trial:
    rows, columns = draw.shape(2)
    width = -(-columns // 8)
    a = draw.place((rows, columns), layout=draw.random.choice(("any", "contiguous")))
    packed = np.packbits(a.values > 0.0, axis=1, bitorder="little")
    if columns > 1 and draw.chance(0.3):
        # The bits go where the values were; each row needs fewer bytes.
        start = int(a.positions.min(initial=a.memory.size)) * a.dtype.itemsize if rows else 0
        out = Place(a.memory.view(np.uint8), (rows, width), (width, 1), start)
        draw.places = [out]
    else:
        out = draw.place((rows, width), BYTE, kind="none")
    return trial("pack_signs", a, result=Result.exact(out, packed))


@case("unpack_signs")
def _unpack_signs(draw: Draw) -> Trial:
    rows, columns = draw.shape(2)
    width = -(-columns // 8)
    out = draw.place((rows, columns), kind="none")
    packed = draw.place((rows, width), BYTE)
    if columns > 1 and rows and draw.chance(0.3):
        start = int(out.positions.min()) * out.dtype.itemsize
        within = Place(out.memory.view(np.uint8), (rows, width), (width, 1), start)
        within.values = packed.values
        packed = within
    bits = np.unpackbits(packed.values, axis=1, count=columns, bitorder="little")
    return trial("unpack_signs", packed, result=Result.exact(out, bits))


# ---- products and sums ----


def _sizes(draw: Draw) -> list[int]:
    """Rows, terms of each sum, columns."""
    sizes = [draw.few(), draw.few(), draw.few()]
    sizes[draw.random.randrange(3)] = draw.length
    return sizes


def _terms_of(a: Place, b: Place) -> np.ndarray:
    """The terms of each element of a stack of products, along the axis before the last."""
    return a.numbers[..., :, :, None] * b.numbers[..., None, :, :]


@case("matmul")
def _matmul(draw: Draw) -> Trial:
    rows, inner, columns = _sizes(draw)
    # With more rows, and most matrices contiguous, the BLAS library computes products with a sum.
    rows += FEW_ROWS if draw.chance(0.3) else 0
    layout = draw.random.choice(("read", "contiguous"))
    stack = tuple(draw.few() for _ in range(draw.random.choice((0, 0, 0, 1))))
    a = draw.place((*stack, rows, inner), kind="finite", layout="read")
    b = draw.place(
        (*(stack if draw.chance(0.5) else ()), inner, columns), kind="finite", layout=layout
    )
    way = "replace" if stack else draw.random.choice(("replace", "add", "plus"))
    out = draw.place(
        (*stack, rows, columns),
        kind="finite" if way == "add" else "none",
        layout="any" if layout == "read" else layout,
    )
    shape = draw.random.choice(((rows, columns), (1, columns), (columns,)))
    plus = draw.place(shape, kind="finite") if way == "plus" else None
    extra = None if plus is None else plus.array
    terms = _terms_of(a, b)
    if way != "replace":
        added = np.broadcast_to((plus or out).numbers, out.shape)
        terms = np.concatenate([terms, added[..., None, :]], axis=-2)
    return Trial(
        lambda tape: tape.matmul(a.array, b.array, out.array, add=way == "add", plus=extra),
        (Result.summed(out, terms, -2),),
    )


@case("small_products")
def _small_products(draw: Draw) -> Trial:
    """Stacks with two axes, one of which either factor can lack, as for panels."""
    rows, inner, columns = _sizes(draw)
    stack = tuple(draw.few() if draw.chance(0.5) else 1 for _ in range(draw.random.randint(0, 2)))
    stacks = [tuple(1 if draw.chance(0.3) else n for n in stack) for _ in range(2)]
    a = draw.place((*stacks[0], rows, inner), kind="finite", layout="read")
    b = draw.place((*stacks[1], inner, columns), kind="finite", layout="read")
    out = draw.place((*stack, rows, columns), kind="none")
    terms = np.broadcast_to(_terms_of(a, b), (*stack, rows, inner, columns))
    return trial("small_products", a, b, result=Result.summed(out, terms, -2))


def _pair(draw: Draw) -> tuple[Place, Place]:
    """Two matrices of the same shape, or one twice."""
    a = draw.place(draw.shape(2), kind="finite", layout="read")
    return a, a if draw.chance(0.3) else draw.place(a.shape, kind="finite", layout="read")


def _type_of_sums(draw: Draw, dtype: np.dtype) -> np.dtype:
    """The type of the terms, or double precision."""
    return DOUBLE if draw.chance(0.3) else dtype


@case("row_dot")
def _row_dot(draw: Draw) -> Trial:
    a, b = _pair(draw)
    out = draw.place(a.shape[:1], _type_of_sums(draw, draw.dtype), kind="none")
    return trial("row_dot", a, b, result=Result.summed(out, a.numbers * b.numbers, 1))


@case("column_sum_of_products")
def _column_sum_of_products(draw: Draw) -> Trial:
    a, b = _pair(draw)
    out = draw.place((1, a.shape[1]), _type_of_sums(draw, draw.dtype), kind="none")
    result = Result.summed(out, a.numbers * b.numbers, 0)
    return trial("column_sum_of_products", a, b, result=result)


@case("column_sum")
def _column_sum(draw: Draw) -> Trial:
    a = draw.place(draw.shape(2), draw.tape_dtype, kind="finite", layout="read")
    out = draw.place((1, a.shape[1]), _type_of_sums(draw, a.dtype), kind="none")
    return trial("column_sum", a, result=Result.summed(out, a.numbers, 0))


@case("within_range")
def _within_range(draw: Draw) -> Trial:
    """Norms of rows, of which some have squares that overflow."""
    shape = draw.shape(2)
    large = draw.random.choice((1.0, 1e30))
    values = np.random.default_rng(draw.random.randrange(1 << 32)).standard_normal(shape) * large
    a = draw.place(shape, draw.tape_dtype, values=values, layout="read")
    out = draw.place(shape[:1], draw.tape_dtype, kind="none")
    norms = np.sqrt(np.square(a.values, dtype=WIDE).sum(axis=1))
    error = np.finfo(out.dtype).eps * (shape[1] + 3)

    def record(tape: NumpyTape) -> None:
        def norms_of(dtype: np.dtype) -> None:
            squares = out.array if out.dtype == dtype else tape.scratch(shape[0], dtype=dtype)
            tape.row_dot(a.array, a.array, squares)
            tape.sqrt(squares, out.array)

        tape.within_range(norms_of, out.array)

    return Trial(record, (Result(out, norms, error * norms),))


@case("count_positive")
def _count_positive(draw: Draw) -> Trial:
    a = draw.place(draw.shape(2), layout="read")
    if draw.chance(0.3):
        a.values = 1.0
    out = draw.place((1, a.shape[1]), kind="none")
    return trial("count_positive", a, result=Result.exact(out, (a.values > 0.0).sum(axis=0)))


@case("row_sum")
def _row_sum(draw: Draw) -> Trial:
    """Row sums of numbers, or of flags as numbers of double precision."""
    is_flags = draw.chance(0.2)
    a = draw.place(draw.shape(2), BOOL if is_flags else None, kind="finite", layout="read")
    out = draw.place((a.shape[0], 1), DOUBLE if is_flags else None, kind="none")
    return trial("row_sum", a, result=Result.summed(out, a.numbers, 1))


@case("sum")
def _sum(draw: Draw) -> Trial:
    shape = draw.shape(draw.random.randint(2, 3))
    axis = draw.random.randrange(len(shape))
    a = draw.place(shape, kind="finite", layout="read")
    out = draw.place((*shape[:axis], *shape[axis + 1 :]), kind="none")
    return trial("sum", a, axis, result=Result.summed(out, a.numbers, axis))


@case("row_maximum")
def _row_maximum(draw: Draw) -> Trial:
    rows, columns = draw.shape(2)
    a = draw.place((rows, max(columns, 1)), layout="read")
    out = draw.place((rows, 1), kind="none")
    return trial("row_maximum", a, result=Result.exact(out, a.values.max(axis=1, keepdims=True)))


def _ranges(draw: Draw) -> tuple[Place, np.ndarray]:
    """A matrix, and ranges of its rows: consecutive ones of equal length, or any, some empty."""
    count, columns = draw.shape(2)
    a = draw.place((draw.few() + 4, columns), draw.tape_dtype, kind="finite")
    rows = a.shape[0]
    if draw.chance(0.5):
        step = draw.random.randint(0, 1) if count <= 4 else 0
        length = draw.random.randint(1, rows - (step * (count - 1) if count else 0))
        ranges = [(k * step, k * step + length) for k in range(count)]
    else:
        ends = [sorted((draw.random.randint(0, rows), draw.few())) for _ in range(count)]
        ranges = [(-1, -1) if draw.chance(0.2) else (begin, end) for begin, end in ends]
    return a, np.array(ranges, np.int32).reshape(-1, 2)


def _sums_of(out: Place, terms: np.ndarray, ranges: np.ndarray, added: np.ndarray) -> Result:
    """Expects the sums of rows of each range, and of one row of what is added to each."""
    sums, errors = np.zeros(out.shape, WIDE), np.zeros(out.shape)
    for k, (begin, end) in enumerate(ranges):
        row = Result.summed(out.part(0, k, 1), np.vstack([terms[begin:end], added[k : k + 1]]), 0)
        sums[k], errors[k] = row.values, row.errors
    return Result(out, sums, errors)


@case("record_row_range_sums")
def _record_row_range_sums(draw: Draw) -> Trial:
    """Sums of ranges, which may be added."""
    a, ranges = _ranges(draw)
    is_added = draw.chance(0.5)
    shape = len(ranges), a.shape[1]
    out = draw.place(shape, a.dtype, kind="finite" if is_added else "none")
    result = _sums_of(out, a.numbers, ranges, out.numbers[: is_added * shape[0]])
    return Trial(
        lambda tape: record_row_range_sums(tape, a.array, ranges, out.array, add=is_added),
        (result,),
    )


@case("record_moments")
def _record_moments(draw: Draw) -> Trial:
    """Sums of ranges, and of squares."""
    a, ranges = _ranges(draw)
    shape = len(ranges), a.shape[1]
    sums, squares = (draw.place(shape, a.dtype, kind="none") for _ in range(2))
    nothing = np.empty((0, shape[1]))
    return Trial(
        lambda tape: record_moments(tape, a.array, ranges, sums.array, squares.array),
        (
            _sums_of(sums, a.numbers, ranges, nothing),
            _sums_of(squares, np.square(a.numbers), ranges, nothing),
        ),
    )


# ---- gathering, random numbers, decisions of the host ----


@case("random_uniform")
def _random_uniform(draw: Draw) -> Trial:
    """The numbers of the random generator, one by one."""
    layout = draw.random.choice(("any", "contiguous"))
    out = draw.place(draw.shape(2), SINGLE, kind="none", layout=layout)
    given, other = (np.random.default_rng(draw.length) for _ in range(2))
    numbers = [other.random(dtype=np.float32) for _ in range(math.prod(out.shape))]
    result = Result.exact(out, np.reshape(numbers, out.shape))
    return trial("random_uniform", given, result=result)


def _indexes(draw: Draw, numbers: Sequence[int]) -> Place:
    """Numbers of rows or columns."""
    values = np.array(numbers, INT64)
    return draw.place(values.shape, INT64, values=values, layout="contiguous")


@case("take_rows")
def _take_rows(draw: Draw) -> Trial:
    count, columns = draw.shape(2)
    source = draw.place((draw.few(), columns), layout="read")
    rows = _indexes(draw, draw.random.choices(range(source.shape[0]), k=count))
    out = draw.place((count, columns), kind="none", layout="contiguous")
    result = Result.exact(out, source.values[rows.values])
    return trial("take_rows", source, rows, result=result)


@case("take_columns")
def _take_columns(draw: Draw) -> Trial:
    rows, count = draw.shape(2)
    source = draw.place((rows, draw.few()), layout="read")
    columns = _indexes(draw, draw.random.choices(range(source.shape[1]), k=count))
    out = draw.place((rows, count), kind="none", layout="contiguous")
    result = Result.exact(out, source.values[:, columns.values])
    return trial("take_columns", source, columns, result=result)


@case("put_rows")
def _put_rows(draw: Draw) -> Trial:
    count, columns = draw.shape(2)
    values, out = draw.place((count, columns)), draw.place((count + draw.few(0), columns))
    rows = _indexes(draw, draw.random.sample(range(out.shape[0]), count))
    expected = out.values
    expected[rows.values] = values.values
    return trial("put_rows", values, rows, result=Result.exact(out, expected))


@case("when")
def _when(draw: Draw) -> Trial:
    """Operations recorded within two conditions run if both hold."""
    shape = draw.shape(2)
    a, out = draw.place(shape), draw.place(shape)
    conditions = [draw.random.choice((0.0, 1.0, -2.0)) for _ in range(2)]

    def record(tape: NumpyTape) -> None:
        outer, inner = (tape.value(lambda value=value: value) for value in conditions)
        with tape.when(outer), tape.when(inner):
            tape.copy(a.array, out.array)

    return Trial(record, (Result.exact(out, (a if all(conditions) else out).values),))


@case("host", "value")
def _host(draw: Draw) -> Trial:
    """An array that the host fills, and a number that it computes."""
    out, number = draw.place(draw.shape(2), kind="none"), draw.number()

    def record(tape: NumpyTape) -> None:
        filled = tape.host(lambda array: array.fill(number), *out.shape, dtype=out.dtype)
        tape.multiply(filled, tape.value(lambda: 0.5), out.array)

    return Trial(record, (Result.exact(out, 0.5 * number),))


@case("ones", "row")
def _ones(draw: Draw) -> Trial:
    out, number = draw.place((1, draw.length), draw.tape_dtype, kind="none"), draw.number()

    def record(tape: NumpyTape) -> None:
        row = tape.row(number, draw.length)
        tape.add(row, tape.ones(draw.length), out.array)

    return Trial(record, (Result.exact(out, number + 1.0),))
