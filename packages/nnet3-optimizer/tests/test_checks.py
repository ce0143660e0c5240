"""Each check refuses its kind of fault, with its place, what was expected and what was found."""

import attrs
import pytest
from brief_computations import NNET, computation
from nnet3_compiler import compile_computation
from nnet3_computation import (
    CheckError,
    ComputationError,
    ComputationRequest,
    IoSpecification,
)
from nnet3_computation.commands import Backprop, Propagate, columns
from nnet3_descriptors import parse_config
from nnet3_optimizer import check_computation

FORWARD = """
m1 = accept input
m2 = zeros
m2 = affine.propagate(m1)
provide output = m2
segment end
free m1
"""
TRAINING = """
m1 = accept input
m2 = undefined
m2 = norm.propagate(m1, memo 1)
norm.store_stats(m2, memo 1)
provide output = m2
segment end
m3 = accept output
m4 = zeros
m4 = norm.backprop(m3, output m2, memo 1)
provide input = m4
free m1
free m3
"""
ROWS = """
m3 = 2 x 4
i0 = 0, 1, 2, -1
j0 = m1[0, 1], m3[1], -
j1 = m3(0:0, :)[0], m3[0], m2[2, 3]
r0 = 0..2, 1..4
m1 = accept input
m2 = zeros
m3 = zeros
m2 = m1[i0]
m3 += sums(m1[r0])
m2 += rows(j0)
provide output = m2
segment end
free m1
free m3
"""
BACKWARD = """
m7 = 2 x 4
i0 = 1, 3
r0 = 0..2, 2..4
m1 = accept input
m2 = undefined
m2 = affine.propagate(m1)
m3 = undefined
m3 = relu.propagate(m2)
free m2
provide output = m3
segment end
m5 = accept output
m4 = undefined
m4 = relu.backprop(m5, output m3)
free m5
m6 = zeros
m6 += m4
- = affine.backprop(m6, input m1)
m7 = zeros
m7 += m6[i0]
m7 += sums(m4[r0])
provide input = m7
free m1
free m4
free m6
"""


def refused(text: str, *changes: tuple[str, str], need: bool = True, **options: bool) -> CheckError:
    """The error of the check for a computation in which some texts are replaced."""
    for old, new in changes:
        assert old in text, f"{old!r} is not in the computation"
        text = text.replace(old, new, 1)
    with pytest.raises(CheckError) as caught:
        check_computation(NNET, computation(text, need_model_derivative=need), **options)
    return caught.value


@pytest.mark.parametrize(
    "text", [FORWARD, TRAINING, ROWS, BACKWARD], ids=["forward", "training", "rows", "backward"]
)
def test_sound_computations_pass(text: str) -> None:
    """The undamaged computations pass the check."""
    check_computation(NNET, computation(text))


def test_message_shows_command_and_neighbours() -> None:
    """An error names the check and the command, and prints it with its neighbours."""
    error = refused(FORWARD, ("m2 = affine.propagate(m1)", "m2 = wide.propagate(m1)"))

    assert isinstance(error, ComputationError)
    assert (error.check, error.command) == ("components", 2)
    assert str(error).splitlines() == [
        "components: c2: Propagate: input = m1 has 4 columns, expected 8 (the input dimension of "
        "component 'wide' (AffineComponent))",
        "    c0: m1 = accept input",
        "    c1: m2 = zeros",
        "  > c2: m2 = wide.propagate(m1)",
        "    c3: provide output = m2",
        "    c4: segment end",
        "    c5: free m1",
    ]


def test_rewrite_is_only_looked_for_on_demand() -> None:
    """Changing a value after it was read is refused for the compiler, not after optimization."""
    change = ("provide output", "m1 = m2\nprovide output")
    text = FORWARD.replace(*change)

    check_computation(NNET, computation(text), check_unused=False)
    error = refused(FORWARD, change, check_rewrite=True, check_unused=False)

    assert error.check == "rewrite"
    assert "MatrixCopy: m1 is changed after c2 read it" in error.message


def test_result_that_nothing_reads() -> None:
    """A command whose result is not used is refused, unless that is allowed."""
    change = ("m2 = zeros", "m3 = zeros\nm3 = affine.propagate(m1)\nfree m3\nm2 = zeros")

    error = refused(FORWARD, change)

    assert (error.check, error.command) == ("unused", 2)
    assert error.message == "Propagate: nothing reads the result"
    check_computation(NNET, computation(FORWARD.replace(*change)), check_unused=False)


def test_result_that_is_overwritten() -> None:
    """A result that is overwritten before anything reads it is refused."""
    damaged = ("m3 += sums(m1[r0])", "m3 += sums(m1[r0])\nm3(0:0, :) = m1(0:0, :)")

    error = refused(ROWS, damaged)

    assert (error.check, error.command) == ("unused", 5)
    assert error.message == (
        "MatrixCopy: m3(0:0, 0:3) is overwritten, but nothing has read what c4 wrote there"
    )


def test_scales_may_be_negated_in_the_backward_part() -> None:
    """Only the backward part can subtract terms, to compute a value again from a sum."""
    text = BACKWARD.replace("m6 += m4", "m6 += -0.5 * m4")
    forward = ("provide output = m2", "m2 += -0.5 * m1\nprovide output = m2")

    check_computation(NNET, computation(text))
    assert "alpha = -0.5, expected one of" in refused(FORWARD, forward).message


def test_value_in_a_sum_of_derivatives() -> None:
    """Compiled computations add up derivatives only; optimized ones can gather values, too."""
    change = ("m6 += m4", "m6 += m4\nm6 += m3")

    check_computation(NNET, computation(BACKWARD), check_rewrite=True)
    check_computation(NNET, computation(BACKWARD.replace(*change)))
    error = refused(BACKWARD, change, check_rewrite=True)

    assert error.check == "direction"
    assert "MatrixAdd: m3 is read, which was written before the marker" in error.message


def test_writing_into_an_input() -> None:
    """Compiled computations do not change inputs; optimized ones can work in place."""
    change = ("m2 = affine.propagate(m1)", "m1 = relu.propagate(m1)\nm2 = affine.propagate(m1)")

    check_computation(NNET, computation(FORWARD.replace(*change)))
    error = refused(FORWARD, change, check_rewrite=True)

    assert error.check == "direction"
    assert error.message == "Propagate: m1 is written, but the user gives it"


TWO_TDNNS = """
input-node name=input dim=4
component name=a type=TdnnComponent input-dim=4 output-dim=4 time-offsets=-1,1
component name=b type=TdnnComponent input-dim=4 output-dim=4 time-offsets=-1,1
component-node name=a component=a input=input
component-node name=b component=b input=a
output-node name=output input=b
"""


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (Propagate, "precomputed_indexes = 1 serve 2 Propagate commands"),
        (Backprop, "precomputed_indexes = 1 served component 'a' in the forward part"),
    ],
)
def test_precomputed_indexes_of_another_component(damaged: type, message: str) -> None:
    """Precomputed indexes belong to one component, and serve one Propagate."""
    nnet = parse_config(TWO_TDNNS)
    frames = IoSpecification.from_range("input", -2, 4)
    wanted = IoSpecification.from_range("output", 0, 2, has_deriv=True)
    request = ComputationRequest(inputs=[frames], outputs=[wanted], need_model_derivative=True)
    compiled = compile_computation(nnet, request)
    table = compiled.command_table.copy()
    column = columns(damaged)["precomputed_indexes"]
    table[table[:, 0] == damaged.OPCODE, column] = 1

    with pytest.raises(CheckError, match=message) as caught:
        check_computation(nnet, attrs.evolve(compiled, command_table=table))

    assert caught.value.check == "balance"


LOOP = """
m1 = accept input
m2 = undefined
m2 = affine.propagate(m1)
free m1
segment end
label
m3 = accept input
m4 = undefined
m4 = affine.propagate(m3)
m4 += m2
provide output = m4
segment end
free m3
{}
goto c5
"""


def test_loop_comes_round() -> None:
    """A loop must end with the matrices with which it began."""
    check_computation(NNET, computation(LOOP.format("")))

    error = refused(LOOP.format("free m2"))

    assert error.check == "loop"
    assert "m2 is allocated at the label, but not at the end" in error.message


def test_label_without_goto() -> None:
    """A label without a jump to it is refused."""
    error = refused(FORWARD, ("m2 = zeros", "label\nm2 = zeros"))

    assert (error.check, error.message) == ("loop", "there is a label, but nothing goes to it")
