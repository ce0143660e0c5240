"""The proof accepts what computes the same, and refuses everything else."""

import re

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import NnetComputation
from nnet3_compiler.commands import SCHEMA
from nnet3_compiler.declaration import OPCODE_COLUMN
from nnet3_descriptors import Nnet
from nnet3_optimizer import (
    ComputationError,
    EquivalenceError,
    check_computation,
    optimize,
    verify_equivalent,
)
from optimizer_networks import examples
from optimizer_programs import NNET, computation
from stand_ins import same_results

PROGRAM = """
m1 = 4 x 4
m2 = 4 x 8
m3 = 4 x 4
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
            "m2(0:1, 2:5) += 0.5 * m1(2:3, :)\nm2(0:1, 2:5) += -0.25 * m1(2:3, :)",
        ),
        ("m3 = zeros", "m3 = zeros\nm3 = constant 3.0\nm3 += m1\nm3 += -1.0 * m1"),
        (
            "m3 = wide.propagate(m2)",
            "m3(0:2, :) = wide.propagate(m2(0:2, :))\nm3(3:3, :) = wide.propagate(m2(3:3, :))",
        ),
        ("free m1\n", "m1 = constant 2.0\nfree m1\n"),
    ],
    ids=["zeros", "rows", "columns", "scales", "overwritten", "simple", "afterwards"],
)
def test_same_result_in_another_way(old: str, new: str) -> None:
    """Splitting, reordering and rewriting that changes no result is accepted."""
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
    """What changes the output is refused, and the output is named."""
    assert old in PROGRAM
    other = computation(PROGRAM.replace(old, new))

    with pytest.raises(EquivalenceError, match="what is provided for node 'output'") as caught:
        verify_equivalent(NNET, computation(PROGRAM), other)

    assert caught.value.what == "output"


def test_message_names_the_rows() -> None:
    """The message says how many rows differ, and which."""
    other = computation(PROGRAM.replace("3, 0, -1, 1", "3, 1, -1, 0"))

    message = "'output' in segment 0 differs in 2 of 4 rows: 1, 3"
    with pytest.raises(EquivalenceError, match=re.escape(message)):
        verify_equivalent(NNET, computation(PROGRAM), other)


def test_undefined_elements_equal_nothing() -> None:
    """A result that depends on memory that nothing wrote differs even from itself."""
    reads = computation(PROGRAM.replace("m2 = zeros", "m2 = undefined").replace("= 0.5", "+= 0.5"))

    with pytest.raises(EquivalenceError):
        verify_equivalent(NNET, reads, reads)


def test_missing_output() -> None:
    """An output that only one computation provides is reported."""
    other = computation(PROGRAM.replace("provide output = m3", "").replace("free m1", ""))

    with pytest.raises(EquivalenceError, match="only the first computation has what is provided"):
        verify_equivalent(NNET, computation(PROGRAM), other)


def test_use_after_free() -> None:
    """A matrix that is used after it was freed is reported with the command."""
    other = computation(PROGRAM.replace("m3 = wide", "free m2\nm3 = wide").rsplit("free m2", 1)[0])

    with pytest.raises(EquivalenceError, match="c7 uses m2 while it is not allocated"):
        verify_equivalent(NNET, computation(PROGRAM), other)


TRAINING = """
m1 = 4 x 4
m2 = 4 x 4
m3 = 4 x 4
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
    """Model updates and statistics are part of what a computation does."""
    with pytest.raises(EquivalenceError, match=message):
        verify_equivalent(NNET, computation(TRAINING), computation(TRAINING.replace(old, new)))


def test_update_in_parts() -> None:
    """The update of a simple component is a sum over rows, in any order."""
    parts = (
        "- = affine.backprop(m3(2:3, :), input m1(2:3, :))\n"
        "- = affine.backprop(m3(0:1, :), input m1(0:1, :))"
    )
    other = TRAINING.replace("- = affine.backprop(m3, input m1)", parts)

    verify_equivalent(NNET, computation(TRAINING), computation(other))


# -- mutations -------------------------------------------------------------------------------------

FAULTS = ("delete", "duplicate", "move", "swap", "operand", "offset", "scale", "kind")


@st.composite
def mutants(draw: st.DrawFn, original: NnetComputation) -> NnetComputation | None:
    """The computation with one fault, or None if the fault can't even be written down."""
    table = original.command_table.copy()
    submatrices = original.submatrices.copy()
    at = draw(st.integers(0, len(table) - 1))
    kind = draw(
        st.sampled_from(
            ["delete", "duplicate", "move", "swap", "operand", "offset", "scale", "kind"]
        )
    )
    if kind == "delete":
        table = np.delete(table, at, axis=0)
    elif kind == "duplicate":
        table = np.insert(table, draw(st.integers(0, len(table))), table[at], axis=0)
    elif kind == "move":
        row = table[at].copy()
        rest = np.delete(table, at, axis=0)
        table = np.insert(rest, draw(st.integers(0, len(rest))), row, axis=0)
    elif kind == "swap":
        other = draw(st.integers(0, len(table) - 1))
        table[[at, other]] = table[[other, at]]
    elif kind == "operand":
        columns = np.flatnonzero(SCHEMA.is_matrix[table[at, OPCODE_COLUMN]])
        if not len(columns):
            return None
        column = int(draw(st.sampled_from(columns.tolist())))
        table[at, column] = draw(st.integers(1, len(submatrices) - 1))
    elif kind == "offset":
        number = draw(st.integers(1, len(submatrices) - 1))
        submatrices[number, draw(st.sampled_from([1, 3]))] += draw(st.sampled_from([-1, 1]))
    elif kind == "scale":
        if not (20 <= table[at, OPCODE_COLUMN] < 30):
            return None
        table[at, 1] = np.float32(draw(st.sampled_from([0.5, -1.0, 3.0]))).view(np.int32)
    else:
        changes = {21: 22, 22: 21, 23: 24, 24: 23, 25: 26, 26: 25, 27: 28, 28: 27, 12: 13}
        opcode = int(table[at, OPCODE_COLUMN])
        if opcode not in changes:
            return None
        table[at, OPCODE_COLUMN] = changes[opcode]
    try:
        return attrs.evolve(original, command_table=table, submatrices=submatrices)
    except ComputationError:
        return None


@given(examples(), st.data())
@settings(max_examples=60, deadline=None)
def test_harmful_mutants_are_caught(
    example: tuple[Nnet, NnetComputation], data: st.DataObject
) -> None:
    """A damaged computation that gives other results fails the checks or the proof."""
    nnet, original = example
    optimized = optimize(nnet, original)
    for _ in range(12):
        mutant = data.draw(mutants(optimized))
        if mutant is None:
            continue
        try:
            check_computation(nnet, mutant)
            verify_equivalent(nnet, original, mutant)
        except ComputationError:
            continue
        assert same_results(nnet, original, mutant)
