"""Tiles of time and height: results are those of direct sums; their filters, parts and blocks."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from computations import bound, single
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nnet3_descriptors.components import TimeOffsetPrecomputedIndexes
from nnet3_runtime_cuda import DeviceNnet, kernels
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.kernels import Backpropagation, Propagation, tile_parts, tiled_product
from nnet3_runtime_cuda.kernels.heights import HeightTiles
from nnet3_runtime_cuda.kernels.tile_parts import PART_COLUMNS, Part, TileFactors
from nnet3_runtime_cuda.kernels.time_tiles import POINTS, TimeTiles, minimal_filtering
from nnet3_runtime_cuda.operations.panels import MOST_INNER, WIDTH, Panels

DOUBLE = np.dtype(np.float64)


class DirectTape(NumpyTape):
    """A tape on which tiles are not faster."""

    def uses_tiles(self) -> bool:
        """False."""
        return False


@attrs.frozen(kw_only=True)
class Layer:
    """A component, and the rows that its time offsets read.

    Attributes:
        component: The type and its options, without time offsets.
        input_dim: Columns of the input.
        output_dim: Columns of the output.
        taps: Number of time offsets.
        distance: Rows between two time offsets.
        first: The first input row.
        rows: Output rows.
        row_stride: Rows between the inputs of neighbouring outputs: if not 1, no tiles over time.
    """

    component: str
    input_dim: int
    output_dim: int
    taps: int = 2
    distance: int
    first: int = 0
    rows: int
    row_stride: int = 1

    @property
    def indexes(self) -> TimeOffsetPrecomputedIndexes:
        """The input rows of each output row."""
        offsets = tuple(self.first + k * self.distance for k in range(self.taps))
        return TimeOffsetPrecomputedIndexes(row_stride=self.row_stride, row_offsets=offsets)

    def run(
        self,
        tape: NumpyTape,
        *,
        add: bool = False,
        first: bool = False,
        trainable: bool = True,
        natural: bool = False,
    ) -> dict[str, np.ndarray]:
        """Output, derivative of the input, and gradient."""
        offsets = ",".join(map(str, range(self.taps)))
        nnet = single(
            f"{self.component} time-offsets={offsets} bias-stddev=1.0", dim=self.input_dim
        )
        device = DeviceNnet(nnet, trainable=trainable, natural_gradient=natural, dtype=tape.dtype)
        rng = np.random.default_rng(self.rows)
        rows_in = self.indexes.row_offsets[-1] + self.row_stride * (self.rows - 1) + 3

        def values(rows: int, columns: int) -> np.ndarray:
            return rng.standard_normal((rows, columns)).astype(tape.dtype)

        x, dx = (values(rows_in, self.input_dim) for _ in range(2))
        y, dy = (values(self.rows, self.output_dim) for _ in range(2))
        if trainable:
            device.direction[:] = values(1, len(device.direction))
        kernel, operands = device.kernel(0), {"tape": tape, "x": x, "y": y, "add": add}
        operands["indexes"] = self.indexes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels.convolution, "FEWEST_HEIGHTS", 1)
            kernel.propagate(Propagation(**operands))
            tape.begin_command()
            kernel.backprop(
                Backpropagation(**operands, dy=dy, dx=dx, update=trainable, first=first)
            )
        tape.run()
        found = {"output": y, "input derivative": dx}
        return found | ({"gradient": device.direction} if trainable else {})


def tdnn(input_dim: int = 7, output_dim: int = 5, *, has_bias: bool = True, **rows: int) -> Layer:
    """A TDNN component; without a bias, it can add to its output."""
    component = (
        f"type=TdnnComponent input-dim={input_dim} output-dim={output_dim} "
        f"use-bias={str(has_bias).lower()}"
    )
    return Layer(component=component, input_dim=input_dim, output_dim=output_dim, **rows)


FILTERS_IN, FILTERS_OUT = 16, 17


def convolution(
    height_out: int = 2, subsampling: int = 1, height_offsets: str = "-1,0,1", **rows: int
) -> Layer:
    """A convolution over time and height, with so many input heights for each output height."""
    height_in = height_out * subsampling
    component = (
        f"type=TimeHeightConvolutionComponent num-filters-in={FILTERS_IN} "
        f"num-filters-out={FILTERS_OUT} height-in={height_in} height-out={height_out} "
        f"height-subsample-out={subsampling} height-offsets={height_offsets}"
    )
    dims = {"input_dim": FILTERS_IN * height_in, "output_dim": FILTERS_OUT * height_out}
    return Layer(component=component, **dims, **rows)


@pytest.fixture(autouse=True)
def always_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses tiles for small products, too, in several parts and blocks."""
    for module, name, value in (
        (tiled_product, "FEWEST_FIXED_ROWS", 1),
        (tiled_product, "FEWEST_CHANGING_ROWS", 1),
        (tiled_product, "FEWEST_COLUMNS", 1),
        (tile_parts, "PART_COLUMNS", 3),
        (tiled_product, "PART_COLUMNS", 3),
        (tiled_product, "CHANGING_PART_COLUMNS", 3),
        (tiled_product, "BLOCK_ROWS", 8),
    ):
        monkeypatch.setattr(module, name, value)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Layers and convolutions for which tiles can pay."""
    taps, distance = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    least = 2 * distance * (7 - taps)
    rows = {"distance": distance, "first": draw(st.integers(0, 2)), "taps": taps}
    rows["rows"] = draw(st.integers(least, least + 60))
    if draw(st.booleans()):
        return tdnn(
            draw(st.integers(1, 9)), draw(st.integers(1, 9)), has_bias=draw(st.booleans()), **rows
        )
    height_out, subsampling = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    offsets, stride = (
        draw(st.sampled_from(["-1,0,1", "0", "0,1"])),
        draw(st.sampled_from([1, 1, 2])),
    )
    found = convolution(height_out, subsampling, offsets, row_stride=stride, **rows)
    has_height_tiles = offsets == "-1,0,1" and subsampling == 1 and height_out % 2 == 0
    has_time_tiles = (
        stride == 1 and TimeTiles.at(found.indexes.row_offsets, found.rows, DOUBLE) is not None
    )
    assume(has_height_tiles or has_time_tiles)
    return found


def assert_near(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], **limits: float
) -> None:
    """Compares what both have; differences are relative to the largest value."""
    for name in found.keys() & expected.keys():
        limit = limits.get(name, limits["other"]) * abs(expected[name]).max()
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=limit, err_msg=name)


@given(layers(), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=7 * settings.default.max_examples // 5)
def test_values_are_those_of_direct_sums(
    layer: Layer, add: bool, first: bool, trainable: bool
) -> None:
    """Output, input derivative and gradient are the same, whether tiles overlap or not."""
    tiled, direct = (
        layer.run(tape(dtype=DOUBLE), add=add, first=first, trainable=trainable)
        for tape in (NumpyTape, DirectTape)
    )

    assert_near(tiled, direct, other=1e-11)


WIDE = [
    tdnn(640, 64, distance=8, rows=300),
    tdnn(64, 640, distance=8, rows=300),
]
HIGH = [
    convolution(heights, taps=3, distance=2, first=1, rows=203, row_stride=stride)
    for stride in (1, 2)
    for heights in (5, 6)
]


@pytest.mark.parametrize("layer", [*WIDE, *HIGH])
@pytest.mark.parametrize("in_panels", [False, True])
def test_values_in_single_precision(
    layer: Layer, in_panels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding errors take a fifth of the tolerance of outputs, and a tenth with gradients."""
    monkeypatch.undo()
    monkeypatch.setattr(NumpyTape, "gains_by_panels", lambda *_: in_panels)
    exact = layer.run(DirectTape(dtype=DOUBLE), first=True)

    for ours in (layer.run(NumpyTape(), first=True), layer.run(NumpyTape(), trainable=False)):
        assert_near(ours, exact, other=2e-6 if layer in WIDE else 1e-6, gradient=1e-5)


@given(layers(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=7 * settings.default.max_examples // 10)
def test_values_do_not_depend_on_threads(
    layer: Layer, add: bool, first: bool, trainable: bool, in_panels: bool
) -> None:
    """Two and three threads, with separate or shared blocks, give the results of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumpyTape, "gains_by_panels", lambda *_: in_panels)
        patch.setattr(tiled_product, "MOST_CHANGING_TAPS", layer.taps)

        values, *all_shared = (
            layer.run(
                NumpyTape(dtype=DOUBLE, workers=workers), add=add, first=first, trainable=trainable
            )
            for workers in (None, Workers(2), Workers(3))
        )

    for shared in all_shared:
        assert_near(shared, values, other=1e-12)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("layer", "limit"),
    [
        (tdnn(distance=2, rows=50), 1e-11),
        (tdnn(distance=2, rows=50, has_bias=False), 1e-11),
        (convolution(taps=3, distance=2, first=1, rows=50), 2e-10),
    ],
)
def test_natural_gradient_is_that_of_direct_sums(layer: Layer, limit: float, first: bool) -> None:
    """The natural gradient by tiles is that by direct products."""
    tiled, direct = (
        layer.run(tape(dtype=DOUBLE), natural=True, first=first) for tape in (NumpyTape, DirectTape)
    )

    assert_near(tiled, direct, other=1e-11, gradient=limit)


@pytest.mark.parametrize("kind", [tdnn, convolution])
def test_tiles_can_be_switched_off(
    kind: Callable[..., Layer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NNET3_TILES=0, all values are those of direct products, to the last bit."""
    layer = kind(taps=3, distance=5, first=1, rows=203)
    tiled, direct = layer.run(NumpyTape()), layer.run(DirectTape())
    monkeypatch.setenv("NNET3_TILES", "0")

    values = layer.run(NumpyTape())

    for name, ours in values.items():
        np.testing.assert_array_equal(ours, direct[name], err_msg=name)
        assert not np.array_equal(ours, tiled[name])


def test_training_forward_is_precise() -> None:
    """Errors of the forward pass are smaller in training, where gradients amplify them."""
    nnet = single("type=TdnnComponent input-dim=256 output-dim=256 time-offsets=-1,0,1", dim=256)
    x = np.random.default_rng(0).standard_normal((1026, 256), dtype=np.float32)

    def output(*, trainable: bool = False, dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        options = {"threads": 1, "trainable": trainable, "dtype": dtype}
        asked = {"sequences": 1, "training": False}
        computer = bound(nnet, range(-1, 1025), range(1024), **asked, **options)
        return computer.forward({"input": x})["output"]

    exact = output(dtype=DOUBLE)
    in_training, in_use = (np.abs(output(trainable=is_so) - exact).max() for is_so in (True, False))
    assert in_training < 0.7 * in_use


# ---- where they are used, and how they are divided ----


@pytest.mark.parametrize(
    ("row_offsets", "rows"),
    [
        ((0,), 100),  # one time offset
        ((0, 1, 3), 100),  # offsets at no constant distance
        ((0, 0), 100),  # no distance
        ((4, 2), 100),  # backward
        ((0, 1, 2), 5),  # so few rows that two tiles have ten products instead of fifteen
        ((0, 40, 80), 100),  # a tile has more rows than there are
        (tuple(range(6)), 100),  # as many offsets as products
    ],
)
def test_rows_that_gain_nothing(row_offsets: tuple[int, ...], rows: int) -> None:
    """Tiles are not used where they would not save products."""
    assert TimeTiles.at(row_offsets, rows, DOUBLE) is None


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
    tiles = TimeTiles.at((0, distance, 2 * distance), rows * distance, DOUBLE)
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
    assert sum(sizes) == tiles.num_tiles * distance


@pytest.mark.parametrize(("rows", "frames"), [(6, 2), (7, 4), (8, 2)])
def test_precise_tiles(rows: int, frames: int) -> None:
    """Precise tiles of three taps have two frames where these save products, else four."""
    tiles = TimeTiles.at((0, 1, 2), rows, DOUBLE, is_precise=True)

    assert tiles is not None
    assert tiles.filtering.num_outputs == frames


@given(st.integers(1, len(POINTS) + 1), st.integers(0, 1000))
def test_outputs_are_those_of_the_filter(num_taps: int, seed: int) -> None:
    """A^T ((G w) * (B^T x)) is the sum of taps times inputs, for any number of taps.

    F(m, r) has m + r - 1 products: one for each point, and one for infinity.
    """
    filtering = minimal_filtering(num_taps, DOUBLE)
    rng = np.random.default_rng(seed)
    x, taps = rng.standard_normal(filtering.num_products), rng.standard_normal(num_taps)

    assert filtering.num_products == filtering.num_outputs + num_taps - 1 == len(POINTS) + 1
    y = filtering.outputs @ ((filtering.taps @ taps) * (filtering.inputs @ x))

    np.testing.assert_allclose(y, np.correlate(x, taps, mode="valid"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [300, 552, 1200, 2000])
def test_changing_factors_take_no_more_memory_than_a_splice(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few rows, parameters that can change are transformed for few columns at a time."""
    monkeypatch.undo()
    input_dim, output_dim, num_taps = 1024, 1536, 3
    tiles = TimeTiles.at((0, 8, 16), rows, np.dtype(np.float32))
    assert tiles is not None

    nnet = single("type=TdnnComponent input-dim=2 output-dim=2 time-offsets=0", dim=2)
    store = DeviceNnet(nnet, trainable=True).kernel(0).store
    linear = np.zeros((output_dim, num_taps * input_dim), np.float32)

    parts = tiled_product.TiledProduct(store, linear, tiles, in_panels=False)._parts

    columns = [part.shape[0] for part in parts]
    assert max(columns) * tiles.num_products <= rows * num_taps
    assert {part.shape[1] for part in parts} == {input_dim}
    assert sum(columns) == output_dim
    assert max(columns) > 0.75 * min(rows * num_taps / tiles.num_products, PART_COLUMNS)


TAPS = np.array([[1, 0], [1, 1], [1, -1], [0, 1]], np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("outputs", [5, 3 * WIDTH, 5 * WIDTH + 3, MOST_INNER + 1])
@pytest.mark.parametrize("inputs", [7, 2 * WIDTH + 32, 2 * MOST_INNER + 1])
def test_sums_of_panels(inputs: int, outputs: int, threads: int) -> None:
    """Panels of changing parameters are right, for any number of threads."""
    nnet = single("type=TdnnComponent input-dim=2 output-dim=2 time-offsets=0", dim=2)
    store = DeviceNnet(nnet, trainable=True).kernel(0).store
    rng = np.random.default_rng(inputs)
    linear = rng.integers(-99, 99, (outputs, 2 * inputs)).astype(np.float32)
    part = Part(0, slice(0, inputs), slice(0, outputs), *[True] * 4)
    tape = NumpyTape(workers=Workers(threads) if threads > 1 else None)
    factors = TileFactors(store, linear, TAPS, [part], in_panels=True)

    forward, backward = factors.forward(tape, part), factors.backward(tape, part)
    tape.run()

    for k, sums in enumerate(np.tensordot(TAPS, linear.reshape(outputs, 2, inputs), (1, 1))):
        for made, matrix in ((forward[k], sums.T), (backward[k], sums)):
            assert isinstance(made, Panels)
            for (_, ours), (_, expected) in zip(made.groups, Panels.of(matrix).groups, strict=True):
                for (_, stack), (_, values) in zip(ours, expected, strict=True):
                    np.testing.assert_array_equal(stack, values)
