"""Convolutions of a device by stacks of products give the results of convolutions by patches."""

from random import Random

import numpy as np
import pytest
from computations import Case, assert_near, needs_compiler, passes, request
from emulated_device import DryRun, HostPlatform
from nnet3_compiler import compile_computation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels import convolution
from random_components import random_case

OPTIONS = {
    "padded": "height-in=7 height-out=7 height-offsets=-1,0,1 time-offsets=-1,0,1",
    "not padded": "height-in=8 height-out=6 height-offsets=0,1,2 time-offsets=0,1",
    "subsampled": "height-in=12 height-out=6 height-subsample-out=2 height-offsets=-1,0,1 "
    "time-offsets=-1,0,2",
    "gaps": "height-in=9 height-out=9 height-offsets=-2,0,2 time-offsets=-1,1",
    "far": "height-in=6 height-out=6 height-offsets=-5,0,1 time-offsets=0 required-time-offsets=0",
    "few heights": "height-in=3 height-out=3 height-offsets=-1,0,1 time-offsets=-1,0,1",
    "one height": "height-in=3 height-out=1 height-offsets=0,1,2 time-offsets=-1,0,1",
    "one column": "height-in=6 height-out=6 height-offsets=0,1 time-offsets=0,1 num-filters-in=1 "
    "num-filters-out=1",
}
FILTERS = {"num-filters-in": 2, "num-filters-out": 3}


@pytest.fixture(autouse=True)
def _stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks also for few filters and rows."""
    monkeypatch.setattr(convolution, "FEWEST_FILTERS", 1)
    monkeypatch.setattr(convolution, "PATCH_BYTES", 0)


def convolution_case(options: str) -> Case:
    """A convolution at times 0 to 3 of the output."""
    given = dict(option.split("=") for option in options.split())
    filters = {key: given.get(key, str(value)) for key, value in FILTERS.items()}
    options = " ".join(f"{key}={value}" for key, value in (given | filters).items())
    dim = int(filters["num-filters-in"]) * int(given["height-in"])
    component = f"type=TimeHeightConvolutionComponent {options} bias-stddev=1"
    return Case(component, dim, range(-2, 7), range(4))


def results(
    case: Case, device: DryRun | HostPlatform | str, *, natural: bool = False
) -> list[np.ndarray]:
    """Output, derivative of the input, and gradient, in the second of two minibatches."""
    nnet = case.nnet()
    trained = DeviceNnet(nnet, device=device, trainable=True, natural_gradient=natural)
    computer = NnetComputer(
        trained, compile_computation(nnet, request(case.inputs, case.outputs, sequences=3))
    )
    passes(computer, 1)
    return passes(computer, 2)


@needs_compiler
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_values(options: str) -> None:
    """Both passes give the values of a processor, without races or reads of unset memory."""
    case = convolution_case(options)
    assert_near(results(case, HostPlatform(strict=True)), results(case, "cpu"))


@needs_compiler
@pytest.mark.parametrize("seed", range(8))
def test_values_of_random_convolutions(seed: int) -> None:
    """So do random convolutions."""
    case = random_case("TimeHeightConvolution", Random(seed))
    assert_near(results(case, HostPlatform()), results(case, "cpu"))


@needs_compiler
@pytest.mark.parametrize("name", ["padded", "one column"])
def test_natural_gradient(name: str) -> None:
    """The natural gradient is that of the processor, also if there is nothing to precondition."""
    case = convolution_case(OPTIONS[name])
    expected = results(case, "cpu", natural=True)
    assert_near(results(case, HostPlatform(), natural=True), expected, 1e-3)


def test_there_is_a_product_for_all_heights() -> None:
    """One for each time offset forward and for the gradient; for each offset the other way."""
    device = DryRun()
    results(convolution_case(OPTIONS["padded"]), device)
    assert [product.batch for product in device.products] == 3 * [7] + 3 * [6, 7, 6] + 3 * [7]


def test_small_convolutions_are_products_with_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that need little memory are made: one product each way."""
    monkeypatch.undo()  # of `_stacked`
    device = DryRun()
    results(convolution_case(OPTIONS["padded"]), device)
    assert [product.batch for product in device.products] == [1, 1, 1]
