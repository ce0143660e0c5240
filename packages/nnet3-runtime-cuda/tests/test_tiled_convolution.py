"""Convolutions by tiles give the results of convolutions by patches."""

import attrs
import numpy as np
import pytest
from computations import single
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nnet3_descriptors.components import TimeOffsetPrecomputedIndexes
from nnet3_runtime_cuda import DeviceNnet
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.kernels import Backpropagation, Propagation, convolution
from nnet3_runtime_cuda.kernels.heights import HeightTiles
from nnet3_runtime_cuda.kernels.time_tiles import TimeTiles

FILTERS_IN, FILTERS_OUT = 16, 17

DOUBLE = np.dtype(np.float64)


class PatchTape(NumpyTape):
    """A tape on which tiles are not faster."""

    def uses_tiles(self) -> bool:
        """False."""
        return False


@attrs.frozen(kw_only=True)
class Convolution:
    """A convolution and its rows.

    Attributes:
        taps: Number of time offsets.
        distance: Rows between two time offsets.
        row_stride: Rows between the inputs of neighbouring outputs: if not 1, no tiles over time.
        first: The first input row.
        rows: Output rows.
        height_out: Heights of the output.
        subsampling: Number of input heights for each output height.
        height_offsets: Height offsets at each time offset.
    """

    taps: int
    distance: int
    first: int
    rows: int
    row_stride: int = 1
    height_out: int = 2
    subsampling: int = 1
    height_offsets: str = "-1,0,1"

    @property
    def indexes(self) -> TimeOffsetPrecomputedIndexes:
        """The input rows of each output row."""
        offsets = tuple(self.first + k * self.distance for k in range(self.taps))
        return TimeOffsetPrecomputedIndexes(row_stride=self.row_stride, row_offsets=offsets)

    @property
    def by_tiles(self) -> bool:
        """Whether tiles are possible, over time or height."""
        has_height_tiles = self.height_offsets == "-1,0,1" and self.subsampling == 1
        has_height_tiles = has_height_tiles and self.height_out % 2 == 0
        return has_height_tiles or TimeTiles.around(self.indexes, self.rows, DOUBLE) is not None

    def run(
        self, tape: NumpyTape, *, add: bool = False, trainable: bool = True, natural: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Output, derivative of the input, and gradient."""
        height_in = self.height_out * self.subsampling
        nnet = single(
            f"type=TimeHeightConvolutionComponent num-filters-in={FILTERS_IN} "
            f"num-filters-out={FILTERS_OUT} height-in={height_in} height-out={self.height_out} "
            f"height-subsample-out={self.subsampling} height-offsets={self.height_offsets} "
            f"time-offsets={','.join(map(str, range(self.taps)))} bias-stddev=1.0",
            dim=FILTERS_IN * height_in,
        )
        device = DeviceNnet(nnet, trainable=trainable, natural_gradient=natural, dtype=tape.dtype)
        rng = np.random.default_rng(self.rows)
        rows_in = self.indexes.row_offsets[-1] + self.row_stride * (self.rows - 1) + 2

        def values(rows: int, columns: int) -> np.ndarray:
            return rng.standard_normal((rows, columns)).astype(tape.dtype)

        x, dx = (values(rows_in, FILTERS_IN * height_in) for _ in range(2))
        y, dy = (values(self.rows, FILTERS_OUT * self.height_out) for _ in range(2))
        kernel = device.kernel(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(convolution, "FEWEST_HEIGHTS", 1)
            kernel.propagate(Propagation(tape=tape, x=x, y=y, indexes=self.indexes))
            tape.begin_command()
            kernel.backprop(
                Backpropagation(
                    tape=tape,
                    x=x,
                    y=y,
                    dy=dy,
                    dx=dx,
                    add=add,
                    indexes=self.indexes,
                    update=trainable,
                )
            )
        tape.run()
        return y, dx, device.direction if trainable else None


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    """Convolutions for which tiles can pay."""
    taps, distance = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    least = 2 * distance * (7 - taps)
    return Convolution(
        taps=taps,
        distance=distance,
        first=draw(st.integers(0, 2)),
        rows=draw(st.integers(least, least + 60)),
        row_stride=draw(st.sampled_from([1, 1, 2])),
        height_out=draw(st.integers(2, 4)),
        subsampling=draw(st.integers(1, 2)),
        height_offsets=draw(st.sampled_from(["-1,0,1", "0", "0,1"])),
    )


@given(convolutions(), st.booleans(), st.booleans())
@settings(max_examples=3 * settings.default.max_examples // 5)
def test_values_are_those_by_patches(convolution: Convolution, add: bool, trainable: bool) -> None:
    """Output, input derivative and gradient are the same, whether tiles overlap or not."""
    assume(convolution.by_tiles)
    by_tiles, by_patches = (
        convolution.run(tape(dtype=DOUBLE), add=add, trainable=trainable)
        for tape in (NumpyTape, PatchTape)
    )

    for ours, theirs in zip(by_tiles, by_patches, strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * abs(theirs).max())


@pytest.mark.parametrize("row_stride", [1, 2])
@pytest.mark.parametrize("height_out", [5, 6])
@pytest.mark.parametrize("in_panels", [False, True])
def test_values_in_single_precision(
    row_stride: int, height_out: int, in_panels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding errors are less than a tenth of the tolerances of outputs and gradients."""
    monkeypatch.setattr(NumpyTape, "gains_by_panels", lambda *_: in_panels)
    convolution = Convolution(
        taps=3, distance=2, first=1, rows=203, row_stride=row_stride, height_out=height_out
    )

    exact = convolution.run(NumpyTape(dtype=DOUBLE))
    trained, fixed = (
        convolution.run(NumpyTape(dtype=np.float32), trainable=trainable)
        for trainable in (True, False)
    )

    for values, limit in zip(
        zip(trained, fixed, exact, strict=True), (1e-6, 1e-6, 1e-5), strict=True
    ):
        *ours, theirs = (value for value in values if value is not None)
        for value in ours:
            np.testing.assert_allclose(value, theirs, rtol=0, atol=limit * abs(theirs).max())


@given(convolutions(), st.booleans(), st.booleans())
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_values_do_not_depend_on_threads(
    convolution: Convolution, add: bool, trainable: bool
) -> None:
    """Two and three threads with separate blocks give the results of one."""
    assume(convolution.by_tiles)

    values, *all_shared = (
        convolution.run(NumpyTape(dtype=DOUBLE, workers=workers), add=add, trainable=trainable)
        for workers in (None, Workers(2), Workers(3))
    )

    for shared in all_shared:
        for ours, theirs in zip(shared, values, strict=True):
            if theirs is not None:
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * abs(theirs).max())


def test_tiles_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NNET3_TILES=0, all values are those by patches, to the last bit."""
    convolution = Convolution(taps=3, distance=5, first=1, rows=203)
    by_tiles, by_patches = convolution.run(NumpyTape()), convolution.run(PatchTape())
    monkeypatch.setenv("NNET3_TILES", "0")

    values = convolution.run(NumpyTape())

    for ours, direct, tiled in zip(values, by_patches, by_tiles, strict=True):
        np.testing.assert_array_equal(ours, direct)
        assert not np.array_equal(direct, tiled)


def test_natural_gradient_is_that_by_patches() -> None:
    """The natural gradient by tiles is that by patches."""
    convolution = Convolution(taps=3, distance=2, first=1, rows=50)

    by_tiles, by_patches = (
        convolution.run(tape(dtype=DOUBLE), natural=True) for tape in (NumpyTape, PatchTape)
    )

    np.testing.assert_allclose(by_tiles[2], by_patches[2], rtol=1e-6)


@pytest.mark.parametrize(
    ("row_stride", "row_offsets", "rows"),
    [
        (1, (0,), 100),  # one time offset
        (1, (0, 1, 3), 100),  # offsets at no constant distance
        (3, (0, 1, 2), 100),  # no output at some frames
        (1, (0, 1, 2), 5),  # so few rows that two tiles have ten products instead of fifteen
        (1, (0, 40, 80), 100),  # a tile has more rows than there are
        (1, tuple(range(6)), 100),  # as many offsets as products
    ],
)
def test_rows_that_gain_nothing(row_stride: int, row_offsets: tuple[int, ...], rows: int) -> None:
    """Tiles are not used where they would not save products."""
    indexes = TimeOffsetPrecomputedIndexes(row_stride=row_stride, row_offsets=row_offsets)

    assert TimeTiles.around(indexes, rows, DOUBLE) is None


@pytest.mark.parametrize(
    ("height_in", "height_out", "subsampling", "heights"),
    [
        (4, 4, 1, [0, 1]),
        (4, 4, 1, [-1, 0, 2]),
        (5, 3, 1, [0, 1, 2]),
        (8, 4, 2, [-1, 0, 1]),
    ],
)
def test_heights_that_are_patches(
    height_in: int, height_out: int, subsampling: int, heights: list[int]
) -> None:
    """Height tiles need three neighbouring heights and an even number of outputs."""
    nnet = single(
        f"type=TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=1 "
        f"height-in={height_in} height-out={height_out} height-subsample-out={subsampling} "
        f"height-offsets={','.join(map(str, heights))} time-offsets=0",
        dim=height_in,
    )

    assert HeightTiles.of(nnet.components[0], heights, DOUBLE) is None


@given(st.integers(1, 5), st.integers(12, 300), st.integers(1, 40))
def test_blocks_cover_the_rows(distance: int, rows: int, most_rows: int) -> None:
    """The blocks have all output rows, each once, in order, and are of similar size."""
    indexes = TimeOffsetPrecomputedIndexes(row_stride=1, row_offsets=(0, distance, 2 * distance))
    tiles = TimeTiles.around(indexes, rows * distance, DOUBLE)
    assert tiles is not None

    blocks = tiles.blocks(most_rows)

    end = 0
    for block in blocks:
        covered = tiles.output_rows(block)
        assert covered.start == end < covered.stop
        end = covered.stop
    assert end == rows * distance
    sizes = [block.rows for block in blocks]
    assert max(sizes) <= max(most_rows, distance) + distance
    assert max(sizes) - min(sizes) <= 2 * distance
    assert sum(sizes) == tiles.count * distance


@pytest.mark.parametrize(("rows", "frames"), [(6, 2), (7, 4), (8, 2)])
def test_precise_tiles(rows: int, frames: int) -> None:
    """Precise tiles of three taps have two frames where these save products, else four."""
    tiles = TimeTiles.at((0, 1, 2), rows, DOUBLE, is_precise=True)

    assert tiles is not None
    assert tiles.filtering.num_outputs == frames
