"""Each check refuses its kind of fault, with its place, what was expected and what was found."""

import functools

import attrs
import brief_computations
import pytest
from brief_computations import NNET
from nnet3_compiler import compile_computation
from nnet3_computation import CheckError, NnetComputation
from nnet3_computation.commands import columns
from nnet3_descriptors import Nnet
from nnet3_optimizer import check_computation
from small_networks import network, request_for, stacked

computation = functools.partial(brief_computations.computation, frees=False)
"""A computation of a text in the short form, which has all commands."""

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


def test_sound_computations_pass() -> None:
    """The undamaged computations pass the check."""
    for text in (FORWARD, TRAINING, ROWS, BACKWARD, LOOP.format("")):
        check_computation(NNET, computation(text))


TWO_TDNNS = stacked(
    4,
    "a Tdnn input-dim=4 output-dim=4 time-offsets=-1,1",
    "b Tdnn input-dim=4 output-dim=4 time-offsets=-1,1",
)


def with_first_indexes(command: type) -> tuple[Nnet, NnetComputation]:
    """Two layers, and their computation, in which all commands of a kind use the first indexes."""
    nnet = network(TWO_TDNNS)
    request = request_for(range(-2, 4), range(2), derivs=["output"], need_model_derivative=True)
    compiled = compile_computation(nnet, request)
    table = compiled.command_table.copy()
    table[table[:, 0] == command.OPCODE, columns(command)["precomputed_indexes"]] = 1
    return nnet, attrs.evolve(compiled, command_table=table)


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
