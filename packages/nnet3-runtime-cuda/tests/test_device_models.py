"""Models and looped computations on a device, for which the processor stands in."""

from __future__ import annotations

import numpy as np
import pytest
from computations import loop, program, single
from emulated_device import HostPlatform, compiler
from nnet3 import Model
from nnet3_descriptors import Nnet, parse_config
from nnet3_runtime_cuda import NnetComputer

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
    devices = HostPlatform(strict=True), "cpu"
    computers = [NnetComputer(nnet, computation, each) for each in devices]
    for _ in range(2):
        for chunk in np.split(given, 6):
            found, expected = (each.forward({"input": chunk})["output"] for each in computers)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        for each in computers:
            each.reset()


PADDED = """
m1 = 4 x 2
m2 = 2 x 2
m3 = 2 x 2
m2 = accept input
m1 = undefined
m1(1:2, :) = m2
compress m1 (type 4, truncate 1, range 10.0)
decompress m1
m3 = undefined
m3 = m1(1:2, :)
provide output = m3
"""
"""A matrix of which only two rows are set is compressed as a whole."""


def test_rows_without_values_are_not_read() -> None:
    """Rows that a computation never sets are set before a kernel reads them with others."""
    nnet = single("type=NoOpComponent dim=2", dim=2)
    computer = NnetComputer(nnet, program(nnet, PADDED), HostPlatform(strict=True))
    given = np.array([[1, 2], [3, 4]], np.float32)
    found = computer.forward({"input": given})["output"]
    np.testing.assert_allclose(found, given, rtol=0, atol=1e-3)


def test_models_compute_utterances() -> None:
    """A model's outputs are the processor's, for utterances of any length."""
    here, there = Model(network()), Model(network(), device=HostPlatform())
    rng = np.random.default_rng(2)
    for frames in (7, 60, 7):
        features = rng.standard_normal((frames, 3), dtype=np.float32)
        found, expected = (each.compute(features, frames_per_chunk=20) for each in (there, here))
        assert found.shape == (frames, 4)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
