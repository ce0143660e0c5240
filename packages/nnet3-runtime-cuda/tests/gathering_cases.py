"""Rows and columns that are gathered, random numbers, and the decisions of the host."""

from __future__ import annotations

import numpy as np
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from operation_cases import (
    INT64,
    SINGLE,
    Result,
    Trial,
    case,
    rows_of,
    trial,
)
from operation_places import Draw, Place


@case("random_uniform")
def _random_uniform(draw: Draw) -> Trial:
    """The numbers of the random generator, one by one."""
    out = draw.place(
        draw.shape(2), SINGLE, kind="none", layout=draw.random.choice(("any", "contiguous"))
    )
    seed = draw.random.randrange(1 << 32)
    generator = np.random.default_rng(seed)
    numbers = [float(generator.random(dtype=np.float32)) for _ in out.positions]
    given = np.random.default_rng(seed)
    return trial("random_uniform", given, result=Result.exact(out, numbers))


# ---- gathering ----


def _indexes(draw: Draw, count: int, limit: int) -> Place:
    numbers = [draw.random.randrange(limit) for _ in range(count)]
    return draw.place((count,), INT64, values=numbers, layout="contiguous")


@case("take_rows")
def _take_rows(draw: Draw) -> Trial:
    count, columns = draw.shape(2)
    source = draw.place((draw.few(), columns), layout="read")
    rows = _indexes(draw, count, source.shape[0])
    out = draw.place((count, columns), kind="none", layout="contiguous")
    of_source = rows_of(source)
    taken = [value for row in rows.values for value in of_source[row]]
    return trial("take_rows", source, rows, result=Result.exact(out, taken))


@case("take_columns")
def _take_columns(draw: Draw) -> Trial:
    rows, count = draw.shape(2)
    source = draw.place((rows, draw.few()), layout="read")
    columns = _indexes(draw, count, source.shape[1])
    out = draw.place((rows, count), kind="none", layout="contiguous")
    taken = [row[column] for row in rows_of(source) for column in columns.values]
    return trial("take_columns", source, columns, result=Result.exact(out, taken))


@case("put_rows")
def _put_rows(draw: Draw) -> Trial:
    count, columns = draw.shape(2)
    values, out = draw.place((count, columns)), draw.place((count + draw.few(0), columns))
    numbers = list(range(out.shape[0]))
    draw.random.shuffle(numbers)
    rows = draw.place((count,), INT64, values=numbers[:count], layout="contiguous")
    expected = rows_of(out)
    for row, put in zip(rows.values, rows_of(values), strict=True):
        expected[row] = put
    after = [value for row in expected for value in row]
    return trial("put_rows", values, rows, result=Result.exact(out, after))


# ---- decisions of the host ----


@case("when")
def _when(draw: Draw) -> Trial:
    """Operations recorded within two conditions run if both hold."""
    shape = draw.shape(2)
    a, out = draw.place(shape), draw.place(shape)
    conditions = [draw.random.choice((0.0, 1.0, -2.0)) for _ in range(2)]
    before, after = out.values, a.values

    def record(tape: NumpyTape) -> None:
        outer, inner = (tape.value(lambda value=value: value) for value in conditions)
        with tape.when(outer), tape.when(inner):
            tape.copy(a.array, out.array)

    return Trial(record, (Result.exact(out, after if all(conditions) else before),))


@case("host", "value")
def _host(draw: Draw) -> Trial:
    """An array that the host fills, and a number that it computes."""
    out, number = draw.place(draw.shape(2), kind="none"), draw.number()

    def fill(array: np.ndarray) -> None:
        array[...] = number

    def record(tape: NumpyTape) -> None:
        filled = tape.host(fill, *out.shape, dtype=out.dtype)
        tape.multiply(filled, tape.value(lambda: 0.5), out.array)

    result = Result.exact(out, [0.5 * number] * len(out.positions))
    return Trial(record, (result,))


@case("ones", "row")
def _ones(draw: Draw) -> Trial:
    out, number = draw.place((1, draw.length), draw.tape_dtype, kind="none"), draw.number()

    def record(tape: NumpyTape) -> None:
        row = tape.row(number, draw.length)
        tape.add(row, tape.ones(draw.length), out.array)

    return Trial(record, (Result.exact(out, [number + 1.0] * draw.length),))
