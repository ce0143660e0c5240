"""The proof accepts equal computations, and refuses all others."""

import pytest
from brief_computations import NNET, computation
from nnet3_optimizer import EquivalenceError, verify_equivalent

PROGRAM = """
m2 = 4 x 8
i0 = 3, 0, -1, 1
m1 = accept input
m2 = zeros
m3 = zeros
m2(:, 0:3) = affine.propagate(m1)
m2(:, 4:7) = 0.5 * m1[i0]
m2(0:1, 2:5) += 0.25 * m1(2:3, :)
m3 = wide.propagate(m2)
provide output = m3
segment end
free m1
free m2
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m2 = zeros", "m2 = undefined"),
        (
            "m2(0:1, 2:5) += 0.25 * m1(2:3, :)",
            "m2(0:0, 2:5) += 0.25 * m1(2:2, :)\nm2(1:1, 2:5) += 0.25 * m1(3:3, :)",
        ),
        (
            "m2(0:1, 2:5) += 0.25 * m1(2:3, :)",
            "m2(0:1, 2:3) += 0.25 * m1(2:3, 0:1)\nm2(0:1, 4:5) += 0.25 * m1(2:3, 2:3)",
        ),
        (
            "m2(0:1, 2:5) += 0.25 * m1(2:3, :)",
            "m4 = undefined\nm4 = 0.5 * m1\nm2(0:1, 2:5) += 0.5 * m4(2:3, :)",
        ),
        (
            "m2(0:1, 2:5) += 0.25 * m1(2:3, :)",
            "m2(:, 2:5) += 1.5 * m1\nm2(0:1, 2:5) += 0.25 * m1(2:3, :)\nm2(:, 2:5) += -1.5 * m1",
        ),
        ("m3 = zeros", "m3 = zeros\nm3 = constant 3.0\nm3 += m1\nm3 += -1.0 * m1"),
        (
            "m3 = wide.propagate(m2)",
            "m3(0:2, :) = wide.propagate(m2(0:2, :))\nm3(3:3, :) = wide.propagate(m2(3:3, :))",
        ),
        ("free m1\n", "m1 = constant 2.0\nfree m1\n"),
    ],
    ids=["zeros", "rows", "columns", "scales", "taken away", "overwritten", "simple", "afterwards"],
)
def test_same_result_in_another_way(old: str, new: str) -> None:
    """Splitting, reordering and rewriting without effect on results is accepted."""
    assert old in PROGRAM

    verify_equivalent(NNET, computation(PROGRAM), computation(PROGRAM.replace(old, new)))


def test_message_names_the_element() -> None:
    """The message and the error have the first row and column that differ."""
    changed = "m3 = wide.propagate(m2)\nm3(2:2, 1:1) = constant 0.5"
    other = computation(PROGRAM.replace("m3 = wide.propagate(m2)", changed))

    with pytest.raises(EquivalenceError, match=r"row 2 from column 1 on$") as caught:
        verify_equivalent(NNET, computation(PROGRAM), other)

    error = caught.value
    assert (error.what, error.segment, error.row, error.column) == ("output", 0, 2, 1)
    assert error.commands == ((), ())


TRAINING = """
m1 = accept input
m2 = undefined
m2 = affine.propagate(m1)
relu.store_stats(m2)
provide output = m2
segment end
m3 = accept output
- = affine.backprop(m3, input m1)
free m1
free m3
"""


def test_update_in_parts() -> None:
    """The update of a simple component is a sum over rows, in any order."""
    parts = (
        "- = affine.backprop(m3(2:3, :), input m1(2:3, :))\n"
        "- = affine.backprop(m3(0:1, :), input m1(0:1, :))"
    )
    other = TRAINING.replace("- = affine.backprop(m3, input m1)", parts)

    verify_equivalent(NNET, computation(TRAINING), computation(other))
