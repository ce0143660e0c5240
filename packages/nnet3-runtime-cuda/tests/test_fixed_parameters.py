"""Fixed parameters can be laid out anew; values stay the same."""

import numpy as np
import pytest
from computations import passes, request, single
from nnet3_compiler import compile_computation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import products
from nnet3_runtime_cuda.cpu.products import PANELS
from nnet3_runtime_cuda.cpu.tape import TRANSPOSED_ROWS

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
def test_values_are_the_same(
    component: str, frames: int, in_panels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network with fixed parameters gives the outputs of a trainable one."""
    monkeypatch.setenv(PANELS.variable, in_panels)
    products.panels_are_faster.cache_clear()
    nnet = single(component, dim=8)
    computation = compile_computation(
        nnet, request(range(frames + 1), range(frames), sequences=1, training=False)
    )

    [fixed], [trainable] = (
        passes(NnetComputer(DeviceNnet(nnet, trainable=can), computation)) for can in (False, True)
    )

    np.testing.assert_allclose(fixed, trainable, rtol=0, atol=1e-5)
    products.panels_are_faster.cache_clear()
