"""Models and looped computations on a device, for which the processor stands in."""

from __future__ import annotations

import numpy as np
import pytest
from computations import loop
from emulated_device import HostPlatform, compiler
from nnet3_descriptors import Nnet, parse_config
from nnet3_runtime_cuda import Model, NnetComputer

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")

RECURRENT = """
input-node name=input dim=3
component name=a type=AffineComponent input-dim=7 output-dim=4
component name=t type=TanhComponent dim=4
component-node name=a component=a input=Append(input, IfDefined(Offset(t, -2)))
component-node name=t component=t input=a
output-node name=output input=t
"""


def network() -> Nnet:
    """A recurrent network."""
    return parse_config(RECURRENT, rng=np.random.default_rng(0))


def test_state_is_handed_over() -> None:
    """Outputs chunk by chunk, and after a reset, are the processor's."""
    nnet = network()
    computation = loop(nnet, 6)
    given = np.random.default_rng(1).standard_normal((36, 3), dtype=np.float32)
    computers = [NnetComputer(nnet, computation, each) for each in (HostPlatform(), "cpu")]
    for _ in range(2):
        for chunk in np.split(given, 6):
            found, expected = (each.forward({"input": chunk})["output"] for each in computers)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        for each in computers:
            each.reset()


def test_models_compute_utterances() -> None:
    """A model's outputs are the processor's, for utterances of any length."""
    here, there = Model(network()), Model(network(), device=HostPlatform())
    rng = np.random.default_rng(2)
    for frames in (7, 60, 7):
        features = rng.standard_normal((frames, 3), dtype=np.float32)
        found, expected = (each.compute(features, frames_per_chunk=20) for each in (there, here))
        assert found.shape == (frames, 4)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
