"""Random masks: their values, which rows share them, and how they follow from the seed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from computations import request, single
from nnet3_compiler import compile_computation
from nnet3_descriptors import Nnet, parse_config, set_test_mode
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu import recorder

TIMES = range(10)
SEQUENCES = 40
DIM = 12

MASKED = """
input-node name=input dim=12
component name=a type=DropoutComponent dim=12 dropout-proportion=0.5
component name=b type=GeneralDropoutComponent dim=12 block-dim=4 dropout-proportion=0.5 \
time-period=3
component name=c type=GeneralDropoutComponent dim=12 specaugment-max-proportion=0.5 \
specaugment-max-regions=2
component name=d type=SpecAugmentTimeMaskComponent dim=12 zeroed-proportion=0.3
component name=e type=DropoutMaskComponent output-dim=12 continuous=true
component name=f type=SigmoidComponent dim=12 self-repair-scale=0.01
component name=g type=NaturalGradientAffineComponent input-dim=12 output-dim=12
component-node name=a component=a input=input
component-node name=b component=b input=input
component-node name=c component=c input=a
component-node name=d component=d input=b
component-node name=e component=e input=input
component-node name=f component=f input=Sum(c, d, e)
component-node name=g component=g input=f
output-node name=output input=g
"""


def outputs(nnet: Nnet, *, seed: int = 0, threads: int = 1, runs: int = 1) -> np.ndarray:
    """The outputs of a network for ones in training: (runs, sequences, times, dim)."""
    computation = compile_computation(nnet, request(TIMES, TIMES, sequences=SEQUENCES))
    computer = NnetComputer(DeviceNnet(nnet, seed=seed, threads=threads), computation)
    ones, found = np.ones((SEQUENCES * len(TIMES), nnet.node_dim("input"))), []
    for _ in range(runs):
        found.append(computer.forward({"input": ones})["output"])
        computer.backward({"output": found[-1]})
    return np.reshape(found, (runs, SEQUENCES, len(TIMES), -1))


def mask(options: str, dim: int = DIM) -> np.ndarray:
    """The outputs of a component for ones: (sequences, times, dim)."""
    return outputs(single(options, dim=dim))[0]


def test_masks_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads give the masks and decisions of one thread, in all runs."""
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 1)
    nnet = parse_config(MASKED, rng=np.random.default_rng(0))
    expected = outputs(nnet, seed=5, runs=3)

    for threads in (1, 2, 3, 4):
        found = outputs(nnet, seed=5, runs=3, threads=threads)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(outputs(nnet, seed=6, runs=3), expected)
    assert not np.allclose(expected[0], expected[1])


@pytest.mark.parametrize("per_frame", [False, True])
def test_dropout(per_frame: bool) -> None:
    """Elements or rows are zero with the given probability; the others are unchanged."""
    flag = "true" if per_frame else "false"
    found = mask(f"type=DropoutComponent dim={DIM} dropout-proportion=0.3 dropout-per-frame={flag}")

    assert set(np.unique(found)) == {0.0, 1.0}
    assert abs(found.mean() - 0.7) < 0.08
    assert (found == found[..., :1]).all() == per_frame


def test_general_dropout() -> None:
    """Other values are scaled up; a sequence has one mask, which its blocks share."""
    found = mask(f"type=GeneralDropoutComponent dim={DIM} block-dim=6 dropout-proportion=0.2")

    np.testing.assert_array_equal(np.unique(found), np.float32([0.0, 1.25]))
    assert abs(found.mean() - 1.0) < 0.1
    assert (found == found[:, :1]).all()
    assert (found[..., :6] == found[..., 6:]).all()
    assert not (found == found[:1]).all()


def test_general_dropout_by_periods() -> None:
    """Each period has another mask; a continuous mask lies around 1."""
    found = mask(
        f"type=GeneralDropoutComponent dim={DIM} dropout-proportion=0.2 continuous=true "
        "time-period=5"
    )

    assert 0.6 <= found.min() < 0.65 < 1.35 < found.max() <= 1.4
    assert (found[:, :5] == found[:, :1]).all()
    assert (found[:, 5:] == found[:, 5:6]).all()
    assert (found[:, 0] != found[:, 5]).any()


def test_bands() -> None:
    """At most the given part of the columns is zero, in one cyclic band."""
    found = mask(f"type=GeneralDropoutComponent dim={DIM} specaugment-max-proportion=0.5")

    assert set(np.unique(found)) == {0.0, 1.0}
    assert (found == found[:, :1]).all()
    zeros = (found[:, 0] == 0.0).sum(axis=1)
    assert set(zeros) == set(range(DIM // 2 + 1))
    borders = (found[:, 0] != np.roll(found[:, 0], 1, axis=1)).sum(axis=1)
    assert (borders == np.where(zeros, 2, 0)).all()


def test_stretches_of_time() -> None:
    """Whole frames are zero, about the given part of them."""
    found = mask(f"type=SpecAugmentTimeMaskComponent dim={DIM} zeroed-proportion=0.3")

    assert set(np.unique(found)) == {0.0, 1.0}
    assert (found == found[..., :1]).all()
    assert 0.1 < 1.0 - found.mean() < 0.5


def test_longest_stretch() -> None:
    """Beside 10 frames of zeros at most, 15 are kept: 10 (1 - 0.4) / 0.4 in single precision."""
    options = "zeroed-proportion=0.4 time-mask-max-frames=10"
    nnet = single(f"type=SpecAugmentTimeMaskComponent dim=1 {options}", dim=1)
    rows = request(range(4000), range(4000), sequences=1)
    ones = np.ones((4000, 1))

    found = NnetComputer(nnet, compile_computation(nnet, rows)).forward({"input": ones})["output"]

    lengths = {
        kind: {len(list(run)) for key, run in itertools.groupby(found[:, 0]) if key == kind}
        for kind in (0.0, 1.0)
    }
    assert {kind: max(each) for kind, each in lengths.items()} == {0.0: 10, 1.0: 15}


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_masks_of_gates(dim: int) -> None:
    """The first two of two or three columns are never both zero; each is zero as often as given."""
    found = mask(f"type=DropoutMaskComponent output-dim={dim} dropout-proportion=0.3", dim)

    assert set(np.unique(found)) == {0.0, 1.0}
    assert np.abs(found.mean(axis=(0, 1)) - 0.7).max() < 0.08
    if dim > 1:
        assert (found[..., :2].max(axis=-1) == 1.0).all() == (dim < 4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("type=DropoutComponent dim=12 dropout-proportion=0.25", 0.75),
        ("type=DropoutMaskComponent output-dim=12 dropout-proportion=0.25", 0.75),
        ("type=DropoutMaskComponent output-dim=12 dropout-proportion=0.25 continuous=true", 1.0),
        ("type=GeneralDropoutComponent dim=12 dropout-proportion=0.25", 1.0),
        ("type=SpecAugmentTimeMaskComponent dim=12", 1.0),
    ],
)
def test_test_mode(options: str, expected: float) -> None:
    """Test mode draws nothing."""
    found = outputs(set_test_mode(single(options, dim=DIM)))

    assert (found == expected).all()
