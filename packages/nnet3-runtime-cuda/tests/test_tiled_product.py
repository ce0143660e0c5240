"""Products by tiles give the results of products of spliced rows."""

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from computations import request, single
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import compile_computation
from nnet3_descriptors.components import TimeOffsetPrecomputedIndexes
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.kernels import Backpropagation, Propagation, tile_parts, tiled_product
from nnet3_runtime_cuda.kernels.tiled_product import TiledProduct

DOUBLE = np.dtype(np.float64)


class DirectTape(NumpyTape):
    """A tape on which tiles are not faster."""

    def uses_tiles(self) -> bool:
        """False."""
        return False


@attrs.frozen(kw_only=True)
class Layer:
    """A TDNN component and its rows.

    Attributes:
        taps: Number of time offsets.
        distance: Rows between two time offsets.
        first: The first input row.
        rows: Output rows.
        input_dim: Columns of the input.
        output_dim: Columns of the output.
        has_bias: Whether there is a bias; without one, the component can add to its output.
    """

    taps: int = 2
    distance: int
    first: int = 0
    rows: int
    input_dim: int = 7
    output_dim: int = 5
    has_bias: bool = True

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
        nnet = single(
            f"type=TdnnComponent input-dim={self.input_dim} output-dim={self.output_dim} "
            f"time-offsets={','.join(map(str, range(self.taps)))} bias-stddev=1.0 "
            f"use-bias={str(self.has_bias).lower()}",
            dim=self.input_dim,
        )
        device = DeviceNnet(nnet, trainable=trainable, natural_gradient=natural, dtype=tape.dtype)
        rng = np.random.default_rng(self.rows)
        rows_in = self.first + (self.taps - 1) * self.distance + self.rows + 2

        def values(rows: int, columns: int) -> np.ndarray:
            return rng.standard_normal((rows, columns)).astype(tape.dtype)

        x, dx = (values(rows_in, self.input_dim) for _ in range(2))
        y, dy = (values(self.rows, self.output_dim) for _ in range(2))
        if trainable:
            device.direction[:] = values(1, len(device.direction))
        kernel = device.kernel(0)
        offsets = tuple(self.first + k * self.distance for k in range(self.taps))
        indexes = TimeOffsetPrecomputedIndexes(row_stride=1, row_offsets=offsets)
        kernel.propagate(Propagation(tape=tape, x=x, y=y, indexes=indexes, add=add))
        tape.begin_command()
        operands = {"tape": tape, "x": x, "y": y, "dy": dy, "dx": dx, "indexes": indexes}
        kernel.backprop(Backpropagation(**operands, add=add, update=trainable, first=first))
        tape.run()
        values_by_name = {"output": y, "input derivative": dx}
        return values_by_name | ({"gradient": device.direction} if trainable else {})


@pytest.fixture(autouse=True)
def always_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses tiles for small products, too, in several parts and blocks."""
    for module, name, value in (
        (tiled_product, "FEWEST_FIXED_ROWS", 1),
        (tiled_product, "FEWEST_CHANGING_ROWS", 1),
        (tiled_product, "FEWEST_COLUMNS", 1),
        (tile_parts, "PART_COLUMNS", 3),
        (tile_parts, "CHANGING_PART_COLUMNS", 3),
        (tile_parts, "BLOCK_ROWS", 8),
    ):
        monkeypatch.setattr(module, name, value)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Layers for which tiles can pay."""
    taps, distance = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    least = 2 * distance * (7 - taps)
    return Layer(
        taps=taps,
        distance=distance,
        first=draw(st.integers(0, 2)),
        rows=draw(st.integers(least, least + 60)),
        input_dim=draw(st.integers(1, 9)),
        output_dim=draw(st.integers(1, 9)),
        has_bias=draw(st.booleans()),
    )


@given(layers(), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=4 * settings.default.max_examples // 5)
def test_values_are_those_of_direct_sums(
    layer: Layer, add: bool, first: bool, trainable: bool
) -> None:
    """Output, input derivative and gradient are the same, whether tiles overlap or not."""
    tiled, direct = (
        layer.run(tape(dtype=DOUBLE), add=add, first=first, trainable=trainable)
        for tape in (NumpyTape, DirectTape)
    )

    for name, values in direct.items():
        limit = 1e-11 * abs(values).max()
        np.testing.assert_allclose(tiled[name], values, rtol=0, atol=limit, err_msg=name)


@pytest.mark.parametrize(("input_dim", "output_dim"), [(640, 64), (64, 640)])
@pytest.mark.parametrize("in_panels", [False, True])
def test_values_in_single_precision(
    input_dim: int, output_dim: int, in_panels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding errors take a fifth of the tolerance of outputs, and a tenth with gradients."""
    monkeypatch.undo()
    monkeypatch.setattr(NumpyTape, "gains_by_panels", lambda *_: in_panels)
    layer = Layer(distance=8, rows=300, input_dim=input_dim, output_dim=output_dim)
    exact = layer.run(DirectTape(dtype=DOUBLE), first=True)

    trained = layer.run(NumpyTape(), first=True)
    fixed = layer.run(NumpyTape(), trainable=False)

    for name, values in exact.items():
        for ours in (trained, fixed):
            if name in ours:
                limit = (1e-5 if name == "gradient" else 2e-6) * abs(values).max()
                np.testing.assert_allclose(ours[name], values, rtol=0, atol=limit, err_msg=name)


@given(layers(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=2 * settings.default.max_examples // 5)
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
        for name, ours in values.items():
            limit = 1e-12 * abs(ours).max()
            np.testing.assert_allclose(shared[name], ours, rtol=0, atol=limit, err_msg=name)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_natural_gradient_is_that_of_direct_sums(has_bias: bool, first: bool) -> None:
    """The natural gradient by tiles is that by direct products."""
    layer = Layer(distance=2, rows=50, has_bias=has_bias)

    tiled, direct = (
        layer.run(tape(dtype=DOUBLE), natural=True, first=first)["gradient"]
        for tape in (NumpyTape, DirectTape)
    )

    np.testing.assert_allclose(tiled, direct, rtol=0, atol=1e-11 * abs(direct).max())


def test_tiles_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NNET3_TILES=0, all values are those of direct products, to the last bit."""
    layer = Layer(distance=5, rows=203)
    tiled, direct = layer.run(NumpyTape()), layer.run(DirectTape())
    monkeypatch.setenv("NNET3_TILES", "0")

    values = layer.run(NumpyTape())

    for name, ours in values.items():
        np.testing.assert_array_equal(ours, direct[name], err_msg=name)
        assert not np.array_equal(ours, tiled[name])


@pytest.mark.parametrize(
    ("offsets", "rows"), [((0, 2, 5), 99), ((0, 0), 99), ((4, 2), 99), ((0, 8), 23), ((0,), 99)]
)
def test_no_tiles_where_they_do_not_pay(offsets: tuple[int, ...], rows: int) -> None:
    """Rows at unequal distances, and few rows, are computed by direct products."""
    device = DeviceNnet(single("type=TdnnComponent input-dim=2 output-dim=2 time-offsets=0", dim=2))
    store = device.kernel(0).store
    linear = np.ones((2, 2 * len(offsets)), np.float32)

    assert TiledProduct.around(NumpyTape(), store, linear, offsets, rows) is None


def test_training_forward_is_precise() -> None:
    """Errors of the forward pass are smaller in training, where gradients amplify them."""
    nnet = single("type=TdnnComponent input-dim=256 output-dim=256 time-offsets=-1,0,1", dim=256)
    wanted = request(inputs=range(-1, 1025), outputs=range(1024), sequences=1, training=False)
    computation = compile_computation(nnet, wanted)
    x = np.random.default_rng(0).standard_normal((1026, 256), dtype=np.float32)

    def output(*, trainable: bool = False, dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        device = DeviceNnet(nnet, threads=1, trainable=trainable, dtype=dtype)
        return NnetComputer(device, computation).forward({"input": x})["output"]

    exact = output(dtype=DOUBLE)
    in_training, in_use = (np.abs(output(trainable=is_so) - exact).max() for is_so in (True, False))
    assert in_training < 0.7 * in_use
