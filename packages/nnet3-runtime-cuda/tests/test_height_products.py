"""Convolutions of a device by stacks of products give the results of convolutions by patches."""

from random import Random

import numpy as np
import pytest
from computations import Case, assert_near, needs_compiler, passes
from emulated_device import DryRun, HostPlatform
from nnet3_runtime_cuda.kernels import convolution
from random_components import random_case

CASES = {
    name: Case(
        f"type=TimeHeightConvolutionComponent num-filters-in={filters} height-in={height} "
        f"num-filters-out={filters_out} {options} bias-stddev=1",
        dim=filters * height,
        inputs=range(-2, 7),
        outputs=range(4),
    )
    for name, filters, filters_out, height, options in (
        ("padded", 2, 3, 7, "height-out=7 height-offsets=-1,0,1 time-offsets=-1,0,1"),
        ("not padded", 2, 3, 8, "height-out=6 height-offsets=0,1,2 time-offsets=0,1"),
        (
            *("subsampled", 2, 3, 12),
            "height-out=6 height-subsample-out=2 height-offsets=-1,0,1 time-offsets=-1,0,2",
        ),
        ("gaps", 2, 3, 9, "height-out=9 height-offsets=-2,0,2 time-offsets=-1,1"),
        (
            *("far", 2, 3, 6),
            "height-out=6 height-offsets=-5,0,1 time-offsets=0 required-time-offsets=0",
        ),
        ("few heights", 2, 3, 3, "height-out=3 height-offsets=-1,0,1 time-offsets=-1,0,1"),
        ("one height", 2, 3, 3, "height-out=1 height-offsets=0,1,2 time-offsets=-1,0,1"),
        ("one column", 1, 1, 6, "height-out=6 height-offsets=0,1 time-offsets=0,1"),
    )
}


@pytest.fixture(autouse=True)
def _stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks also for few filters and rows."""
    monkeypatch.setattr(convolution, "FEWEST_FILTERS", 1)
    monkeypatch.setattr(convolution, "PATCH_BYTES", 0)


def results(
    case: Case, device: DryRun | HostPlatform | str, *, natural: bool = False
) -> list[np.ndarray]:
    """Output, derivative of the input, and gradient, in the second of two minibatches."""
    computer = case.bound(sequences=3, device=device, trainable=True, natural_gradient=natural)
    passes(computer, 1)
    return passes(computer, 2)


@needs_compiler
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values(case: Case) -> None:
    """Both passes give the values of a processor, without races or reads of unset memory."""
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
    found, expected = (results(CASES[name], on, natural=True) for on in (HostPlatform(), "cpu"))
    assert_near(found, expected, 1e-3)


def test_there_is_a_product_for_all_heights() -> None:
    """One for each time offset forward and for the gradient; for each offset the other way."""
    device = DryRun()
    results(CASES["padded"], device)
    assert [product.batch for product in device.products] == 3 * [7] + 3 * [6, 7, 6] + 3 * [7]


def test_small_convolutions_are_products_with_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that need little memory are made: one product each way."""
    monkeypatch.undo()  # of `_stacked`
    device = DryRun()
    results(CASES["padded"], device)
    assert [product.batch for product in device.products] == [1, 1, 1]
