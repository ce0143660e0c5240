"""Zeros stay zeros where a NormalizeComponent would enlarge a rounding error."""

from __future__ import annotations

import numpy as np
import pytest
from computations import bound
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda.device.state import with_exact_zeros
from small_networks import network, stacked

LAYERS = {
    "tdnn": "Tdnn input-dim=64 output-dim=64 time-offsets=-1,0 use-bias=false",
    "zero bias": "Tdnn input-dim=64 output-dim=64 time-offsets=-1,0 bias-stddev=0",
    "convolution": "TimeHeightConvolution num-filters-in=16 num-filters-out=16"
    " height-in=4 height-out=4 height-offsets=-1,0,1 time-offsets=-1,0,1",
    "bias": "Tdnn input-dim=64 output-dim=64 time-offsets=-1,0 bias-stddev=1",
}
NORMALIZE = "Normalize dim=64"
COMPOSITE = (
    "Composite max-rows-process=2048 num-components=2"
    " component1='type=RectifiedLinearComponent dim=64'"
    " component2='type=NormalizeComponent dim=64'"
)
OTHER = "RectifiedLinear dim=64"
FRAMES = 600


def two_layers(first: str, second: str = NORMALIZE) -> Nnet:
    """A layer over the input, and another one."""
    return network(stacked(64, f"first {LAYERS[first]}", f"second {second}"))


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("layer", ["tdnn", "zero bias", "convolution"])
def test_frames_without_sound(layer: str, trainable: bool) -> None:
    """An output that sees nothing but zeros is zero, wherever the zeros begin."""
    nnet = two_layers(layer)
    times = np.arange(-1, FRAMES + 1)
    asked = {"sequences": 1, "training": False, "optimized": True}
    computer = bound(nnet, range(-1, FRAMES + 1), range(FRAMES), **asked, trainable=trainable)
    for start in range(200, 212):
        x = np.random.default_rng(1).standard_normal((len(times), 64), dtype=np.float32)
        x[(start <= times) & (times < start + 60)] = 0.0

        y = computer.forward({"input": x})["output"]

        assert not y[start + 1 : start + 59].any()
        assert y[start - 5 : start].all()


@pytest.mark.parametrize(
    ("layer", "rest", "numbers"),
    [
        ("tdnn", NORMALIZE, {0, 1}),
        ("zero bias", NORMALIZE, {0, 1}),
        ("bias", NORMALIZE, {1}),
        ("tdnn", COMPOSITE, {0, 1}),
        ("tdnn", OTHER, set()),
    ],
)
def test_which_components(layer: str, rest: str, numbers: set[int]) -> None:
    """They are those without a bias, in networks that normalize rows."""
    assert with_exact_zeros(two_layers(layer, rest)) == numbers
