"""Masks of whole sequences and stretches of time: values, given masks, test mode."""

import itertools
from typing import Any

import attrs
import numpy as np
import pytest
from formula_calls import SameDraws, Setting, setting
from nnet3_runtime_reference import GivenMasks
from nnet3_runtime_reference.draws import Array

SEQUENCES, TIMES = 60, 30
INDEXES = np.array([[n, t, 0] for n in range(SEQUENCES) for t in range(TIMES)], np.int32)


def mask(options: str) -> Array:
    """The output of a component for ones, (sequences, times, dim)."""
    made = setting(f"type={options}", INDEXES, np.random.default_rng(0))
    ones = np.ones((len(INDEXES), made.component.input_dim))
    return made.propagated(ones).y.reshape(SEQUENCES, TIMES, -1)


def test_general_dropout() -> None:
    """Kept values are divided by the probability of keeping them."""
    found = mask("GeneralDropoutComponent dim=20 dropout-proportion=0.2")

    np.testing.assert_allclose(np.unique(found), [0.0, 1.25])
    assert abs(found.mean() - 1.0) < 0.05


def test_continuous_dropout() -> None:
    """The mask is uniform around 1."""
    found = mask("GeneralDropoutComponent dim=20 dropout-proportion=0.2 continuous=true")

    assert 0.6 <= found.min() < 0.61 < 1.39 < found.max() <= 1.4
    assert abs(found.mean() - 1.0) < 0.05


@pytest.mark.parametrize("continuous", [False, True])
def test_dropout_of_frames(continuous: bool) -> None:
    """All columns of a mask are equal; a mask that is not continuous is 0 or 1."""
    made = setting("type=GeneralDropoutComponent dim=4", INDEXES, np.random.default_rng(0))
    component = made.component.replace(dropout_per_frame=True, continuous=continuous)
    found = attrs.evolve(made, component=component).propagated(np.ones((len(INDEXES), 4))).y

    assert (found == found[:, :1]).all()
    assert continuous or set(np.unique(found)) == {0.0, 1.0}


def test_bands() -> None:
    """At most the given part of the columns is 0, in one cyclic band."""
    found = mask("GeneralDropoutComponent dim=8 specaugment-max-proportion=0.5")[:, 0]

    zeros = (found == 0.0).sum(axis=1)
    assert set(zeros) == {0, 1, 2, 3, 4}
    borders = (found != np.roll(found, 1, axis=1)).sum(axis=1)
    assert (borders == np.where(zeros, 2, 0)).all()


def test_regions() -> None:
    """With more regions, the same number of zeros is in more bands."""
    found = mask(
        "GeneralDropoutComponent dim=16 specaugment-max-proportion=0.5 specaugment-max-regions=3"
    )[:, 0]

    borders = (found != np.roll(found, 1, axis=1)).sum(axis=1)
    assert set(np.unique(found)) == {0.0, 1.0}
    assert (found == 0.0).sum(axis=1).max() == 8
    assert 2 < borders.max() <= 6


class Scripted(SameDraws):
    """Draws integers from a list."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(decision=False)
        self.numbers = iter(numbers)

    def integers(self, *bounds: int) -> int:
        """Returns the next number."""
        return next(self.numbers)

    def mask(self, component: str, shape: tuple[int, int], make: Any) -> Array:
        """Draws a mask from the list."""
        return np.asarray(make(self))


def test_a_turned_half() -> None:
    """A band of three columns from the second on; then a half circle from the third is reversed."""
    options = "dim=10 specaugment-max-proportion=1 specaugment-max-regions=2"
    made = setting(f"type=GeneralDropoutComponent {options}", INDEXES[:1], np.random.default_rng(0))
    y = attrs.evolve(made, draws=Scripted(3, 1, 2)).propagated(np.ones((1, 10))).y

    # Columns 2 and 7 are exchanged, and so are 3 and 6.
    assert np.flatnonzero(y == 0.0).tolist() == [1, 6, 7]


def test_bands_without_dropout() -> None:
    """Bands do not depend on the probability of dropout."""
    found = mask("GeneralDropoutComponent dim=8 dropout-proportion=0 specaugment-max-proportion=1")

    assert set(np.unique(found)) == {0.0, 1.0}


def test_stretches_of_time() -> None:
    """Stretches of 0 and of 1 alternate, and have at most the given numbers of frames."""
    found = mask("SpecAugmentTimeMaskComponent dim=2 zeroed-proportion=0.5 time-mask-max-frames=3")

    assert (found == found[:, :, :1]).all()
    lengths = [
        (value, len(list(group)))
        for sequence in found[:, :, 0]
        for value, group in itertools.groupby(sequence)
    ]
    assert set(lengths) == {(value, length) for value in (0.0, 1.0) for length in (1, 2, 3)}


def test_rows_of_one_sequence_by_time() -> None:
    """Stretches follow the order of time, in whatever order the rows are."""
    rng = np.random.default_rng(0)
    made = setting("type=SpecAugmentTimeMaskComponent dim=1", INDEXES, rng)
    order = rng.permutation(len(INDEXES))
    shuffled = INDEXES[order]
    moved = Setting(
        component=made.component,
        input_indexes=shuffled,
        output_indexes=shuffled,
        indexes=made.component.precompute_indexes(shuffled, shuffled, True),
        draws=made.draws,
    )
    ones = np.ones((len(INDEXES), 1))

    np.testing.assert_array_equal(moved.propagated(ones).y, made.propagated(ones).y[order])


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        ("GeneralDropoutComponent dim=4 block-dim=2", [[2.0, 3.0]], [[2, 3, 2, 3]] * 3),
        ("SpecAugmentTimeMaskComponent dim=4", [[0], [1], [5]], [[0] * 4, [1] * 4, [5] * 4]),
    ],
)
def test_given_masks(options: str, given: list[list[float]], expected: list[list[float]]) -> None:
    """Rows are multiplied by a given mask, forward and backward."""
    indexes = INDEXES[:3]
    made = setting(f"type={options}", indexes, np.random.default_rng(0))
    x = np.arange(12.0).reshape(3, 4)
    masks = [np.array(given, dtype=np.float64)]

    forward = attrs.evolve(made, draws=GivenMasks({"c": masks})).propagated(x)
    np.testing.assert_array_equal(forward.y, x * expected)
    backward = attrs.evolve(made, draws=GivenMasks({"c": masks})).backpropagated(x, x + 1)
    np.testing.assert_array_equal(backward.dx, (x + 1) * expected)


@pytest.mark.parametrize(
    ("options", "is_tested"),
    [
        ("GeneralDropoutComponent dim=4", True),
        ("GeneralDropoutComponent dim=4 dropout-proportion=0", False),
        ("SpecAugmentTimeMaskComponent dim=4", True),
        ("SpecAugmentTimeMaskComponent dim=4 zeroed-proportion=0", False),
    ],
)
def test_nothing_is_masked(options: str, is_tested: bool) -> None:
    """In test mode, or without dropout, values are unchanged."""
    made = setting(f"type={options}", INDEXES[:3], np.random.default_rng(0))
    component = made.component.with_test_mode(is_tested)
    made = attrs.evolve(made, component=component, draws=SameDraws(decision=True))
    x = np.arange(12.0).reshape(3, 4)

    run = made.backpropagated(x, 2 * x)

    np.testing.assert_array_equal(run.y, x)
    np.testing.assert_array_equal(run.dx, 2 * x)
