"""The proof accepts equal computations, and refuses all others."""

import re

import attrs
import numpy as np
import pytest
from brief_computations import NNET, computation
from nnet3_computation import CheckError
from nnet3_optimizer import EquivalenceError, verify_equivalent
from nnet3_optimizer.equivalence import Prover

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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.25 *", "0.2500001 *"),
        ("0.25 * m1(2:3, :)", "0.25 * m1(1:2, :)"),
        ("m2(0:1, 2:5)", "m2(0:1, 3:6)"),
        ("m2(0:1, 2:5)", "m2(1:2, 2:5)"),
        ("3, 0, -1, 1", "3, 0, 1, -1"),
        ("= 0.5 * m1[i0]", "+= 0.5 * m1[i0]\nm2(:, 4:7) += 0.5 * m1[i0]"),
        ("m2(:, 0:3) = affine.propagate(m1)", "m2(:, 0:3) = affine2.propagate(m1)"),
        ("m2(:, 0:3) = affine", "m2(:, 0:2) = m1(:, 0:2)\nm2(:, 4:7) = affine"),
        ("m3 = wide.propagate(m2)", "m3 = wide.propagate(m2)\nm3(0:0, :) = constant 0.0"),
    ],
)
def test_another_result(old: str, new: str) -> None:
    """A change of the output is refused, and the output is named."""
    assert old in PROGRAM
    other = computation(PROGRAM.replace(old, new))

    with pytest.raises(EquivalenceError, match="what is provided for node 'output'") as caught:
        verify_equivalent(NNET, computation(PROGRAM), other)

    assert caught.value.what == "output"


def test_message_names_the_rows() -> None:
    """The message states how many rows differ, and which."""
    other = computation(PROGRAM.replace("3, 0, -1, 1", "3, 1, -1, 0"))

    message = "'output' in segment 0 differs in 2 of 4 rows: 1, 3"
    with pytest.raises(EquivalenceError, match=re.escape(message)):
        verify_equivalent(NNET, computation(PROGRAM), other)


def test_message_names_the_element() -> None:
    """The message and the error have the first row and column that differ."""
    changed = "m3 = wide.propagate(m2)\nm3(2:2, 1:1) = constant 0.5"
    other = computation(PROGRAM.replace("m3 = wide.propagate(m2)", changed))

    with pytest.raises(EquivalenceError, match=r"row 2 from column 1 on$") as caught:
        verify_equivalent(NNET, computation(PROGRAM), other)

    error = caught.value
    assert (error.what, error.segment, error.row, error.column) == ("output", 0, 2, 1)
    assert error.commands == ((), ())


def test_undefined_elements_equal_nothing() -> None:
    """A result that depends on unwritten memory differs even from itself."""
    reads = computation(PROGRAM.replace("m2 = zeros", "m2 = undefined").replace("= 0.5", "+= 0.5"))

    with pytest.raises(EquivalenceError):
        verify_equivalent(NNET, reads, reads)


def test_missing_output() -> None:
    """An output that only one computation provides is reported."""
    other = computation(PROGRAM.replace("provide output = m3", "").replace("free m1", ""))

    with pytest.raises(EquivalenceError, match="only the first computation has what is provided"):
        verify_equivalent(NNET, computation(PROGRAM), other)


def test_no_commands() -> None:
    """A computation without commands equals only itself."""
    whole = computation(PROGRAM)
    empty = attrs.evolve(whole, command_table=whole.command_table[:0])

    verify_equivalent(NNET, empty, empty)
    with pytest.raises(EquivalenceError, match="only the first computation has"):
        verify_equivalent(NNET, whole, empty)


def test_use_after_free() -> None:
    """A matrix that is used after it was freed is reported with the command."""
    other = computation(PROGRAM.replace("m3 = wide", "free m2\nm3 = wide").rsplit("free m2", 1)[0])

    with pytest.raises(EquivalenceError, match="c7 uses m2 while it is not allocated"):
        verify_equivalent(NNET, computation(PROGRAM), other)


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- = affine.backprop(m3, input m1)", "", "the update of component 'affine' differs"),
        (
            "- = affine.backprop(m3, input m1)",
            "- = affine.backprop(m3(0:2, :), input m1(0:2, :))",
            "the update of component 'affine' differs",
        ),
        ("affine.backprop", "affine2.backprop", "the update of component 'affine' differs"),
        ("relu.store_stats(m2)", "", "the statistics of component 'relu' differs"),
        (
            "relu.store_stats(m2)",
            "relu.store_stats(m2)\nrelu.store_stats(m2)",
            "the statistics of component 'relu' differs",
        ),
    ],
)
def test_side_effects_are_compared(old: str, new: str, message: str) -> None:
    """The proof compares model updates and statistics, too."""
    with pytest.raises(EquivalenceError, match=message):
        verify_equivalent(NNET, computation(TRAINING), computation(TRAINING.replace(old, new)))


def test_message_names_the_calls_of_an_update() -> None:
    """For a different update, the message shows calls that only one of the computations has."""
    other = computation(TRAINING.replace("affine.backprop", "affine2.backprop"))

    with pytest.raises(EquivalenceError, match=r"before, c7: - = affine\.backprop") as caught:
        verify_equivalent(NNET, computation(TRAINING), other)

    assert caught.value.commands == ((7,), ())


def test_same_calls() -> None:
    """An update in parts has the same sum, but other calls."""
    parts = (
        "- = affine.backprop(m3(0:1, :), input m1(0:1, :))\n"
        "- = affine.backprop(m3(2:3, :), input m1(2:3, :))"
    )
    other = TRAINING.replace("- = affine.backprop(m3, input m1)", parts)
    prover = Prover(NNET)

    prover.verify(computation(TRAINING), computation(other))
    with pytest.raises(
        EquivalenceError, match="the same sum, but made by other calls, 1 before and 2"
    ):
        prover.verify(computation(TRAINING), computation(other), same_calls=True)


def test_update_in_parts() -> None:
    """The update of a simple component is a sum over rows, in any order."""
    parts = (
        "- = affine.backprop(m3(2:3, :), input m1(2:3, :))\n"
        "- = affine.backprop(m3(0:1, :), input m1(0:1, :))"
    )
    other = TRAINING.replace("- = affine.backprop(m3, input m1)", parts)

    verify_equivalent(NNET, computation(TRAINING), computation(other))


@pytest.mark.parametrize("rows", [(), (3,), (3, 0, -1, 1, 1), (3, 0, -1, 4)])
def test_lists_that_do_not_fit(rows: tuple[int, ...]) -> None:
    """Lists of other lengths, or with other rows, are refused on either side."""
    sound = computation(PROGRAM)
    damaged = attrs.evolve(sound, indexes=[np.array(rows, np.int32)])

    for pair in ((sound, damaged), (damaged, sound)):
        with pytest.raises(CheckError, match=r"^rows: c4: "):
            verify_equivalent(NNET, *pair)
