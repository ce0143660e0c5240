"""Products with parameters in panels, and with fixed parameters that are laid out anew."""

from __future__ import annotations

import numpy as np
import pytest
from computations import compiled, passes, single
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import products, recorder
from nnet3_runtime_cuda.cpu.products import PANELS
from nnet3_runtime_cuda.cpu.tape import TRANSPOSED_ROWS, NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.operations import panels
from nnet3_runtime_cuda.operations.panels import MOST_INNER, WIDTH, Panels


@settings(max_examples=2 * settings.default.max_examples // 5)
@given(
    rows=st.integers(1, 60),
    inner=st.sampled_from([1, 7, 512, MOST_INNER, MOST_INNER + 1, 3 * MOST_INNER]),
    columns=st.sampled_from([1, WIDTH - 1, WIDTH, 2 * WIDTH + 5]),
    form=st.sampled_from(["replace", "add", "plus"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    threads=st.sampled_from([1, 2, 5]),
    at_once=st.sampled_from([1, panels.BYTES_AT_ONCE]),
    is_copied=st.booleans(),
    seed=st.integers(0, 9),
)
def test_products(
    rows: int,
    inner: int,
    columns: int,
    form: str,
    dtype: type[np.floating],
    threads: int,
    at_once: int,
    is_copied: bool,
    seed: int,
) -> None:
    """The product is that with the matrix, fixed or laid out by the same run; gaps stay as is."""
    rng = np.random.default_rng(seed)

    def integers(*shape: int) -> np.ndarray:
        return rng.integers(-9, 10, shape).astype(dtype)  # their products and sums are exact

    x, matrix = integers(rows, inner + 3)[:, 1:-2], integers(columns, inner).T
    memory, other = integers(rows, columns + 2), integers(rows, columns)
    out, expected = memory[:, :-2], memory.copy()
    expected[:, :-2] = x @ matrix + {"replace": 0.0, "add": out, "plus": other}[form]
    tape = NumpyTape(dtype=dtype, workers=Workers(threads) if threads > 1 else None)

    tape.scratch(1 << 16, dtype=np.uint8).fill(255)  # NaN, until an operation writes it
    tape.begin_command()
    made = Panels.of(matrix)
    if is_copied:
        made = Panels.within(np.full(matrix.size, np.nan, dtype), matrix.shape)
        made.record_copy(tape, matrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "BYTES_AT_ONCE", at_once)
        patch.setattr(recorder, "FEWEST_SHARED", 0)
        plus = other if form == "plus" else None
        made.record(tape, x, out, add=form == "add", plus=plus)
        tape.run()

    np.testing.assert_array_equal(memory, expected)


@given(
    inner=st.sampled_from([1, 7, MOST_INNER + 1]),
    columns=st.integers(1, 5 * WIDTH),
    step=st.integers(1, 3),
)
def test_copies(inner: int, columns: int, step: int) -> None:
    """A matrix is copied to panels in memory at once, or a few panels at a time."""
    matrix = np.arange(inner * columns, dtype=np.float32).reshape(inner, columns)
    memory = np.zeros((2, matrix.size), np.float32)
    whole, pieces = (Panels.within(row, matrix.shape) for row in memory)
    tape = NumpyTape()

    whole.record_copy(tape, matrix)
    for start in range(0, columns, step * WIDTH):
        pieces.record_copy(tape, matrix[:, start : start + step * WIDTH], start)
    tape.run()

    expected = [stack for _, parts in Panels.of(matrix).groups for _, stack in parts]
    np.testing.assert_array_equal(memory[0], np.concatenate([s.ravel() for s in expected]))
    np.testing.assert_array_equal(memory[1], memory[0])


@given(
    inner=st.sampled_from([1, 7, MOST_INNER + 1]),
    first=st.integers(0, 3),
    count=st.integers(1, 3),
    more=st.integers(1, 4 * WIDTH),
)
def test_places(inner: int, first: int, count: int, more: int) -> None:
    """The places of columns are those that copying them writes, each once."""
    start = first * WIDTH
    columns = start + more
    end = min(start + count * WIDTH, columns)
    memory = np.zeros(inner * columns, np.float32)
    panels = Panels.within(memory, (inner, columns))
    tape = NumpyTape()

    panels.record_copy(tape, np.ones((inner, end - start), np.float32), start)
    tape.run()
    for place in panels.places(start, end):
        memory[place] += 1

    assert memory.sum() == 2 * inner * (end - start)
    assert set(memory) <= {0, 2}


def test_products_are_small() -> None:
    """Products of a stack are within the limit of the library's functions for small products."""
    matrix = np.ones((3 * MOST_INNER, 200), np.float32)

    stacks = [
        (a.shape[-2], b.shape[-2], b.shape[-1])
        for _, parts in Panels.of(matrix).groups
        for terms, part in parts
        for a, b, _ in panels.stacks(
            np.ones((100, 3 * MOST_INNER), np.float32)[:, terms],
            part,
            np.ones((100, part.shape[0] * part.shape[2]), np.float32),
        )
    ]

    assert stacks
    assert all(np.prod(sizes) <= panels.MOST_WORK for sizes in stacks)


@given(rows=st.integers(1, 300), most=st.integers(0, 70))
def test_heights(rows: int, most: int) -> None:
    """Pieces have at most the given rows, and whole groups of rows where possible."""
    height = panels.piece_height(rows, most)

    assert 1 <= height <= min(rows, max(most, 1))
    assert height % panels.ROWS_AT_ONCE == 0 or height == rows or most < panels.ROWS_AT_ONCE


CONVOLUTION = (
    "type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=4 "
    "height-out=4 height-offsets=-1,0,1 time-offsets=0,1"
)


@pytest.mark.parametrize(
    "component",
    [
        "type=NaturalGradientAffineComponent input-dim=8 output-dim=12",
        "type=LinearComponent input-dim=8 output-dim=12",
        "type=TdnnComponent input-dim=8 output-dim=12 time-offsets=0,1",
        CONVOLUTION,
    ],
)
@pytest.mark.parametrize("frames", [2, TRANSPOSED_ROWS.start, TRANSPOSED_ROWS.stop])
@pytest.mark.parametrize("in_panels", ["0", "1"])
def test_fixed_parameters(
    component: str, frames: int, in_panels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network with fixed parameters gives the outputs of a trainable one."""
    monkeypatch.setenv(PANELS.variable, in_panels)
    products.panels_are_faster.cache_clear()
    nnet = single(component, dim=8)
    computation = compiled(nnet, range(frames + 1), range(frames), sequences=1, training=False)

    [fixed], [trainable] = (
        passes(NnetComputer(DeviceNnet(nnet, trainable=can), computation)) for can in (False, True)
    )

    np.testing.assert_allclose(fixed, trainable, rtol=0, atol=1e-5)
    products.panels_are_faster.cache_clear()
