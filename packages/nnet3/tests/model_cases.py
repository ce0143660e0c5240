"""Features of noise, comparisons of outputs, and what is alive, in the tests of models."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import NnetComputer
from small_networks import network, request_for, stacked


def frames(count: int, *, dim: int = 4, seed: int = 0) -> np.ndarray:
    """Features of random numbers."""
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def network_with_the_past(dim: int = 4) -> Nnet:
    """A network that needs one frame of left context."""
    affine = f"a Affine input-dim=6 output-dim={dim}"
    return network(stacked(3, affine, splice="Append(Offset(input, -1), input)"))


def request_of(frames: int, first: int = -1) -> ComputationRequest:
    """A request for the given number of output frames."""
    return request_for(range(first, frames), range(frames))


def assert_same(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Asserts that outputs are the same up to rounding."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=0.1 * tolerance)


class Counted:
    """The bytes of a run's arrays and computers that are alive.

    Attributes:
        features: The arrays that were read.
        computers: The bound computers, with their bytes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.features: list[weakref.ref[np.ndarray]] = []
        self.computers: list[weakref.ref[NnetComputer]] = []
        self.most_of_computers = 0
        make = NnetComputer.__init__

        def noted(computer: NnetComputer, *arguments: object, **options: object) -> None:
            make(computer, *arguments, **options)
            self.computers.append(weakref.ref(computer))
            self.most_of_computers = max(self.most_of_computers, self.of_computers())

        monkeypatch.setattr(NnetComputer, "__init__", noted)

    def of_computers(self) -> int:
        """Bytes of all computers that are alive."""
        alive = (each() for each in self.computers)
        return sum(computer.memory_bytes for computer in alive if computer is not None)

    def of_features(self) -> int:
        """Bytes of all features that are alive."""
        alive = (each() for each in self.features)
        return sum(array.nbytes for array in alive if array is not None)
