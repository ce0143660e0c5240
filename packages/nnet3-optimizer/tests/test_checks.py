"""Each check refuses its kind of fault, with its place, what was expected and what was found."""

import re

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


CASES = [
    # -- components
    (
        FORWARD,
        [("m2 = zeros", "m2 = 4 x 3\nm2 = zeros")],
        "components",
        "output = m2 has 3 columns, expected 4",
    ),
    (
        FORWARD,
        [("m1 = accept input", "m1 = 5 x 4\nm1 = accept input")],
        "components",
        "output = m2 has 4 rows, expected 5 (the rows of input: the component is simple)",
    ),
    (
        FORWARD,
        [("affine.propagate(m1)", "affine.propagate(-)")],
        "components",
        "no input is given to the simple component 'affine'",
    ),
    (
        FORWARD,
        [("m2 = affine.propagate(m1)", "m2 = affine.propagate(m2)")],
        "components",
        "output and input are the same submatrix: no in-place computation for component 'affine'",
    ),
    (
        FORWARD,
        [("m2 = affine.propagate(m1)", "m2(0:2, :) = affine.propagate(m2(1:3, :))")],
        "components",
        "output overlaps input without being the same, for component 'affine'",
    ),
    (
        TRAINING,
        [("norm.backprop(m3, output m2, memo 1)", "affine.backprop(m3)")],
        "components",
        "input_value is not given, but needed by component 'affine'",
    ),
    (
        TRAINING,
        [("norm.backprop(m3, output m2, memo 1)", "norm.backprop(m3, memo 1)")],
        "components",
        "output_value is not given, but needed by component 'norm'",
    ),
    (
        TRAINING,
        [("m4 = norm.backprop(m3, output m2, memo 1)", "- = norm.backprop(m3, output m2, memo 1)")],
        "components",
        "neither an input derivative nor a model update is wanted of component 'norm'",
    ),
    (
        TRAINING,
        [("m4 = norm.backprop(m3, output m2, memo 1)", "m1 = affine.backprop(m3, input m1)")],
        "components",
        "input_deriv overlaps input_value, for component 'affine'",
    ),
    (
        TRAINING,
        [("norm.store_stats(m2, memo 1)", "affine.store_stats(m2)")],
        "components",
        "statistics are stored that are not kept by component 'affine'",
    ),
    (
        TRAINING,
        [
            ("m2 = undefined", "m2 = 4 x 8\nm2 = undefined"),
            ("m2 = norm.propagate(m1, memo 1)", "m2(:, 0:3) = conv.propagate(m1)"),
        ],
        "components",
        "output is narrower than its matrix, but rows without gaps are needed by component 'conv'",
    ),
    # -- rows
    (
        ROWS,
        [("m2 = m1[i0]", "m2 = m1(0:2, :)")],
        "rows",
        "input = m1(0:2, :) has 3 rows, expected 4",
    ),
    (ROWS, [("m2 = m1[i0]", "m2 += m2")], "rows", "output = m2 overlaps input = m2"),
    (
        ROWS,
        [("m2 = m1[i0]", "m2(0:1, :) = m2(1:2, :)")],
        "rows",
        "output = m2(0:1, :) overlaps input = m2(1:2, :)",
    ),
    (
        ROWS,
        [("0, 1, 2, -1", "0, 1, 2")],
        "rows",
        "indexes has 3 entries, expected 4 (the rows of m2)",
    ),
    (
        ROWS,
        [("0, 1, 2, -1", "0, 1, 2, 4")],
        "rows",
        "indexes name row 4 of input = m1, which has 4 rows",
    ),
    (
        ROWS,
        [("0..2, 1..4", "0..2, 1..5")],
        "rows",
        "indexes_ranges end at row 5 of input = m1, which has 4 rows",
    ),
    (ROWS, [("m1[0, 1], m3[1], -", "m1[0, 1], m3[1]")], "rows", "indexes_multi has 3 entries"),
    (
        ROWS,
        [("m1[0, 1], m3[1], -", "m1[0, 1], m2[1], -")],
        "rows",
        "output = m2 overlaps input = m2",
    ),
    (
        ROWS,
        [("m1[0, 1], m3[1], -", "m1[0, 1], m1(:, 0:2)[1], -")],
        "rows",
        "a submatrix in indexes_multi = m1(:, 0:2) has 3 columns, expected 4",
    ),
    (
        ROWS,
        [("m2 += rows(j0)", "rows(j1) += m1")],
        "rows",
        "entries 0 and 1 of indexes_multi, [",
    ),
    (
        ROWS,
        [("m2 = m1[i0]", "m2 = 1e30 * m1[i0]")],
        "rows",
        "CopyRows: alpha = 1e+30, expected one of 0.25, 0.5, 1, 1.5 (the scales of the network",
    ),
    (
        ROWS,
        [("m2 = m1[i0]", "m2 = 0.75 * m1[i0]")],
        "rows",
        "alpha = 0.75, expected one of",
    ),
    (
        ROWS,
        [("m3 = zeros", "m3 = zeros\nm3 = constant 2.0")],
        "rows",
        "SetConst: alpha = 2, expected one of 0 (the constants of the network",
    ),
    (
        BACKWARD,
        [("m6 += m4", "m6 += m4\nm6 = m6")],
        "rows",
        "output = m6 overlaps input = m6",
    ),
    (
        BACKWARD,
        [("backprop(m5, output m3)", "backprop(m5, output m5)")],
        "components",
        "output_deriv overlaps output_value, for component 'relu'",
    ),
    (
        BACKWARD,
        [("i0 = 1, 3", "i0 = 1, 1")],
        "rows",
        "AddRows: indexes name row 1 of input = m6 twice",
    ),
    (
        BACKWARD,
        [("r0 = 0..2, 2..4", "r0 = 0..2, 1..4")],
        "rows",
        "AddRowRanges: indexes_ranges name row 1 of input = m4 twice",
    ),
    (
        BACKWARD,
        [("r0 = 0..2, 2..4", "r0 = 0..2, 2..2")],
        "rows",
        "AddRowRanges: indexes_ranges have 2..2, expected rows or none",
    ),
    # -- balance
    (
        TRAINING,
        [("norm.store_stats(m2, memo 1)", "norm.store_stats(m2(0:1, :), memo 1)")],
        "balance",
        "component 'norm' (BatchNormComponent) stores statistics of 2 rows in all, but runs over 4",
    ),
    (
        BACKWARD,
        [("- = affine.backprop(m6, input m1)", "- = affine2.backprop(m6, input m1)")],
        "balance",
        "component 'affine2' (AffineComponent) runs backward over 4 rows in all for its update, "
        "but forward over 0",
    ),
    (
        BACKWARD,
        [("m4 = relu.backprop(m5, output m3)", "m4 = sigmoid.backprop(m5, output m3)")],
        "balance",
        "component 'sigmoid' (SigmoidComponent) runs backward over 4 rows in all for derivatives",
    ),
    # -- order and world
    (FORWARD, [("segment end\n", "")], "order", "there is no NoOperationMarker"),
    (
        TRAINING,
        [
            ("norm.store_stats(m2, memo 1)\n", ""),
            ("m4 = zeros", "norm.store_stats(m2)\nm4 = zeros"),
        ],
        "order",
        "StoreStats: runs forward after the marker, c4",
    ),
    (
        FORWARD,
        [("provide output = m2", "- = affine.backprop(m2, input m1)\nprovide output = m2")],
        "order",
        "Backprop: runs backward before the marker",
    ),
    (
        FORWARD,
        [("accept input", "accept affine_input")],
        "world",
        "expected an input before the marker",
    ),
    (FORWARD, [("accept input", "accept output")], "world", "found 'output' (OutputNode)"),
    (
        TRAINING,
        [("provide input", "provide output")],
        "world",
        "expected an input after the marker",
    ),
    (
        FORWARD,
        [("provide output = m2", "provide output = m2\nprovide output = m2")],
        "world",
        "node 'output' is named twice in a segment",
    ),
    # -- allocation
    (FORWARD, [("m2 = zeros\n", "")], "allocation", "m2 is never allocated"),
    (
        FORWARD,
        [("m2 = zeros", "m2 = zeros\nm2 = zeros")],
        "allocation",
        "m2 is allocated a second time",
    ),
    (FORWARD, [("free m1", "")], "allocation", "m1 is never freed, and is no output"),
    (FORWARD, [("free m1", "free m1\nfree m1")], "allocation", "m1 is freed a second time"),
    (FORWARD, [("free m1", "free m1\nfree m2")], "allocation", "m2 is an output"),
    (
        FORWARD,
        [("free m1", ""), ("m2 = zeros", "free m1\nm2 = zeros")],
        "allocation",
        "m1 is accessed after c1 freed it",
    ),
    (
        FORWARD,
        [("m2 = zeros\n", ""), ("provide output", "m2 = zeros\nprovide output")],
        "allocation",
        "m2 is accessed before c2 allocates it",
    ),
    (
        ROWS,
        [("m3 += sums(m1[r0])", "m3 = take m1")],
        "allocation",
        "m1 has the size (4, 4), expected (2, 4) (the size of m3)",
    ),
    # -- values
    (
        ROWS,
        [("m2 = zeros", "m2 = undefined"), ("m2 = m1[i0]", "m2(0:1, :) = m1(0:1, :)")],
        "undefined",
        "AddRowsMulti: m2(2:3, 0:3) is read, but nothing wrote it before",
    ),
    # -- memos
    (
        TRAINING,
        [("(m1, memo 1)", "(m1)"), ("norm.store_stats(m2, memo 1)", "norm.store_stats(m2)")],
        "memos",
        "Backprop: memo 1 is used, but no Propagate made it before",
    ),
    (
        TRAINING,
        [
            ("(m3, output m2, memo 1)", "(m3, output m2)"),
            ("store_stats(m2, memo 1)", "store_stats(m2)"),
        ],
        "memos",
        "Propagate: memo 1 is made, but never used",
    ),
    (
        TRAINING,
        [("provide input", "m4 = norm.backprop(m3, output m2, memo 1)\nprovide input")],
        "memos",
        "Backprop: memo 1 was already used up by c8",
    ),
    (
        FORWARD,
        [("(m1)", "(m1, memo 3)")],
        "memos",
        "Propagate: memo = 3, but component 'affine' makes no memos",
    ),
    # -- compression
    (
        TRAINING,
        [("provide output", "compress m1 (type 9, truncate 0)\nprovide output")],
        "compression",
        "compression_type = 9, expected one of [1, 2, 3, 4, 5]",
    ),
    (
        TRAINING,
        [("provide output", "compress m1 (type 1, truncate 2)\nprovide output")],
        "compression",
        "truncate = 2, expected 0 or 1",
    ),
    (
        TRAINING,
        [("provide output", "compress m1 (type 1, truncate 0, range 0.0)\nprovide output")],
        "compression",
        "alpha = 0 is not allowed for compression_type 1",
    ),
    (
        TRAINING,
        [("provide output", "compress m1 (type 5, truncate 0, range 2.0)\nprovide output")],
        "compression",
        "alpha = 2, expected 0: one bit has no range",
    ),
    (
        TRAINING,
        [("m2 = norm", "compress m1 (type 1, truncate 0)\nm2 = norm")],
        "compression",
        "Propagate: m1 is accessed, but compressed since c2",
    ),
    (
        TRAINING,
        [("m4 = zeros", "decompress m1\nm4 = zeros")],
        "compression",
        "m1 is not compressed",
    ),
    (
        TRAINING,
        [
            ("provide output", "compress m1 (type 2, truncate 1, range 0.0)\nprovide output"),
            ("provide input", "decompress m1\nm4 += m1\nprovide input"),
        ],
        "compression",
        "m1 keeps only signs since c4: a RectifiedLinear backward pass is expected as its only use",
    ),
]


@pytest.mark.parametrize(
    ("text", "changes", "check", "message"), CASES, ids=[case[-1][:50] for case in CASES]
)
def test_refusal(text: str, changes: list[tuple[str, str]], check: str, message: str) -> None:
    """The damage is refused by the right check, with a helpful message."""
    error = refused(text, *changes)

    assert error.check == check
    assert re.search(re.escape(message), error.message), error.message


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
