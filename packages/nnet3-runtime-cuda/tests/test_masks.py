"""Random masks are those of the definition for the same seed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from computations import bound, compiled, single
from nnet3_descriptors import Nnet, set_test_mode
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.cpu import recorder
from nnet3_runtime_reference import Draws, ReferenceComputer
from small_networks import network, stacked

TIMES = range(10)
SEQUENCES = 40

MASKED = stacked(
    12,
    "a Dropout dim=12 dropout-proportion=0.5",
    "b GeneralDropout dim=12 block-dim=4 dropout-proportion=0.5 time-period=3 input=input",
    "c GeneralDropout dim=12 specaugment-max-proportion=0.5 specaugment-max-regions=2 input=a",
    "d SpecAugmentTimeMask dim=12 zeroed-proportion=0.3 input=b",
    "e DropoutMask output-dim=12 continuous=true input=input",
    "f Sigmoid dim=12 self-repair-scale=0.01 input=Sum(c, d, e)",
    "g NaturalGradientAffine input-dim=12 output-dim=12",
)


def outputs(computer: NnetComputer | ReferenceComputer) -> list[np.ndarray]:
    """The outputs for ones in three runs of training."""
    ones, found = np.ones((SEQUENCES * len(TIMES), computer.nnet.node_dim("input"))), []
    for _ in range(3):
        found.append(computer.forward({"input": ones})["output"])
        computer.backward({"output": found[-1]})
    return found


def by_kernels(nnet: Nnet, *, seed: int = 5, threads: int = 1) -> list[np.ndarray]:
    """The outputs of the runtime."""
    return outputs(bound(nnet, TIMES, sequences=SEQUENCES, seed=seed, threads=threads))


def by_definition(nnet: Nnet) -> list[np.ndarray]:
    """The outputs of the definition for the same seed."""
    computation = compiled(nnet, TIMES, sequences=SEQUENCES)
    return outputs(ReferenceComputer(nnet, computation, draws=Draws(5)))


def test_masks_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of threads gives the masks and decisions of the definition, in all runs."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)
    nnet = network(MASKED)
    expected = by_definition(nnet)

    for threads in (1, 2, 3, 4):
        found = by_kernels(nnet, threads=threads)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(by_kernels(nnet, seed=6), expected)


@pytest.mark.parametrize(
    "options",
    [
        "Dropout dim=12 dropout-proportion=0.3",
        "Dropout dim=12 dropout-proportion=0.3 dropout-per-frame=true",
        "GeneralDropout dim=12 block-dim=6 dropout-proportion=0.2",
        "GeneralDropout dim=12 dropout-proportion=0.2 continuous=true time-period=5",
        "GeneralDropout dim=12 specaugment-max-proportion=0.5",
        "GeneralDropout dim=12 specaugment-max-proportion=0.5 specaugment-max-regions=3",
        "SpecAugmentTimeMask dim=12 zeroed-proportion=0.3",
        *(f"DropoutMask output-dim={dim} dropout-proportion=0.3" for dim in (1, 2, 3, 4, 12)),
        "DropoutMask output-dim=12 dropout-proportion=0.3 continuous=true",
    ],
)
def test_masks_are_those_of_the_definition(options: str) -> None:
    """Equal seeds give equal masks, other ones in each run; in test mode nothing is drawn."""
    _, dim, *_ = options.replace("=", " ").split()[::2]
    drawn = network(stacked(int(dim), f"c {options}"))
    for nnet in (drawn, set_test_mode(drawn)):
        found = by_kernels(nnet)

        np.testing.assert_allclose(found, by_definition(nnet), rtol=1e-6)
        assert np.array_equal(*found[:2]) == (nnet is not drawn)


def test_longest_stretch() -> None:
    """Beside 10 frames of zeros at most, 15 are kept: 10 (1 - 0.4) / 0.4 in single precision."""
    options = "zeroed-proportion=0.4 time-mask-max-frames=10"
    nnet = single(f"type=SpecAugmentTimeMaskComponent dim=1 {options}", dim=1)
    computer = bound(nnet, range(4000), sequences=1)

    found = computer.forward({"input": np.ones((4000, 1))})["output"]

    lengths = {
        kind: {len(list(run)) for key, run in itertools.groupby(found[:, 0]) if key == kind}
        for kind in (0.0, 1.0)
    }
    assert {kind: max(each) for kind, each in lengths.items()} == {0.0: 10, 1.0: 15}
