"""The proof accepts equal computations of any sequences, and refuses all others."""

import functools
from random import Random

import attrs
import numpy as np
import pytest
from brief_computations import NNET, computation
from damage import KINDS, Damage
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import compile_computation
from nnet3_computation import IoSpecification, NnetComputation
from nnet3_computation.commands import FIRST_OPERAND_COLUMN, OPCODE_COLUMN, AddRows
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import EquivalenceError, optimize, verify_equivalent
from small_networks import request_for, stacked
from visible_results import agree, results

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
"""


def test_update_in_parts() -> None:
    """The update of a simple component is a sum over rows, in any order."""
    parts = (
        "- = affine.backprop(m3(2:3, :), input m1(2:3, :))\n"
        "- = affine.backprop(m3(0:1, :), input m1(0:1, :))"
    )
    other = TRAINING.replace("- = affine.backprop(m3, input m1)", parts)

    verify_equivalent(NNET, computation(TRAINING), computation(other))


SPLICED = """
m1 = 9 x 4
m2 = 9 x 8
m3 = 9 x 4
i0 = 8, 7, 6, 3, 5, 4, 2, 1, 0
m1 = accept input
m2 = undefined
m2(:, 0:1) = m1(:, 0:1)
m2(:, 2:3) = m1(:, 2:3)[i0]
m2(:, 4:7) = m1
m3 = undefined
m3 = wide.propagate(m2)
provide output = m3
segment end
"""

Example = tuple[Nnet, NnetComputation, NnetComputation]
"""A network, the compiled computation of a request, and the optimized one."""

SEQUENCES = 4

TDNN = "input-node name=ivector dim=2\n" + stacked(
    4,
    "affine1 NaturalGradientAffine input-dim=10 output-dim=6",
    "relu1 RectifiedLinear dim=6",
    "affine2 Affine input-dim=12 output-dim=6 "
    "input=Append(Offset(relu1, -3), Sum(relu1, Scale(0.5, Offset(relu1, 3))))",
    "norm2 BatchNorm dim=6",
    "affine3 Affine input-dim=6 output-dim=9",
    splice="Append(Offset(input, -1), input, ReplaceIndex(ivector, t, 0))",
)

STATISTICS = stacked(
    4,
    "affine1 NaturalGradientAffine input-dim=8 output-dim=6",
    "extract StatisticsExtraction input-dim=6",
    "pool StatisticsPooling input-dim=13 left-context=4 right-context=4 output-stddevs=true",
    "affine2 Affine input-dim=12 output-dim=3",
    splice="Append(Offset(input, -1), input)",
)


def cut(io: IoSpecification) -> IoSpecification:
    """The rows without the last frames of every other sequence."""
    n, t = np.asarray(io.indexes)[:, :2].T
    is_kept = (t <= t.max() - 3) | (n % 2 == 0) | (t.max() == 0)
    return attrs.evolve(io, indexes=np.asarray(io.indexes)[is_kept])


def cut_inside(io: IoSpecification) -> IoSpecification:
    """The rows without frames in the statistics of every other sequence."""
    n, t = np.asarray(io.indexes)[:, :2].T
    return attrs.evolve(io, indexes=np.asarray(io.indexes)[(t <= 2) | (n % 2 == 0)])


WHOLE = attrs.evolve
"""Leaves the rows of a specification as they are."""

EXAMPLES = {
    "tdnn": (TDNN, range(0, 9, 3), WHOLE),
    "statistics": (STATISTICS, range(1), WHOLE),
    "two kinds": (TDNN, range(0, 9, 3), cut),
    "ragged statistics": (STATISTICS, range(1), cut_inside),
}
"""Networks, the times of their outputs, and how sequences are made to differ in length."""


@functools.cache
def example(name: str) -> Example:
    """One of the examples, in training."""
    config, times, shortened = EXAMPLES[name]
    nnet = parse_config(config)
    request = request_for(
        range(-8, 14),
        times,
        SEQUENCES,
        derivs=["output"],
        need_model_derivative=True,
        store_component_stats=True,
    )
    inputs = [*request.inputs, IoSpecification.from_range("ivector", 0, 1, SEQUENCES)]
    request = attrs.evolve(
        request,
        inputs=tuple(map(shortened, inputs[: len(nnet.input_nodes)])),
        outputs=tuple(map(shortened, request.outputs)),
    )
    compiled = compile_computation(nnet, request)
    return nnet, compiled, optimize(nnet, compiled)


@pytest.mark.parametrize("name", EXAMPLES)
def test_optimized_computations_are_equal(name: str) -> None:
    """Compiled and optimized computations are equal."""
    verify_equivalent(*example(name))


def same_row_of_all_sequences(rng: Random, computation: NnetComputation) -> NnetComputation:
    """In a list of rows in the order of frames, those of one frame are missing, or are row 0."""
    lists = list(computation.indexes)
    number = rng.randrange(len(lists))
    lists[number] = lists[number].copy()
    lists[number][rng.randrange(len(lists[number])) :: SEQUENCES] = rng.randint(-1, 0)
    return attrs.evolve(computation, indexes=tuple(lists))


@pytest.mark.parametrize("name", ["tdnn", "two kinds"])
@given(
    st.sampled_from([*KINDS.values(), same_row_of_all_sequences]), st.randoms(use_true_random=False)
)
@settings(max_examples=3 * settings.default.max_examples // 2)
def test_what_is_accepted_gives_the_same_results(name: str, damage: Damage, rng: Random) -> None:
    """A damaged computation that the proof accepts runs, with the results of the sound one."""
    nnet, compiled, optimized = example(name)
    try:
        other = damage(rng, optimized)
        if other is None:
            return
        verify_equivalent(nnet, compiled, other)
    except ValueError:  # cannot be constructed, does not fit, or is not equivalent
        return
    found, expected = results(nnet, other), results(nnet, optimized)

    assert found is not None
    assert expected is not None
    assert agree(found, expected)


def first_list(computation: NnetComputation) -> int:
    """The list of the first command that adds rows."""
    is_sum = computation.command_table[:, OPCODE_COLUMN] == AddRows.OPCODE
    return int(computation.command_table[is_sum][0, FIRST_OPERAND_COLUMN + 2])
