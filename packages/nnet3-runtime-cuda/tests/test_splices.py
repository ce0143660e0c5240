"""Tests of splices: inputs and derivatives that are rows of one matrix at several offsets."""

from __future__ import annotations

import re

import numpy as np
import pytest
from computations import Stated, assert_near, passes, program, request
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3 import CachingCompiler
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels import tiled_product
from nnet3_runtime_cuda.lowering import splices
from nnet3_runtime_cuda.lowering.areas import Area
from nnet3_runtime_cuda.lowering.plan import Plan, plan_with
from nnet3_runtime_cuda.lowering.splices import SplicedDerivative, Taps
from small_networks import network, stacked


def spliced(offsets: tuple[int, int, int] = (-2, 0, 2)) -> Nnet:
    """An affine map on several frames of another one."""
    read = ", ".join(f"Offset(below, {offset})" for offset in offsets)
    return network(
        stacked(
            4,
            "below NaturalGradientAffine input-dim=4 output-dim=4",
            f"wide NaturalGradientAffine input-dim=12 output-dim=4 input=Append({read})",
            "squashed Tanh dim=4",
        )
    )


NNET = spliced()
NOTHING = Plan({}, {}, {}, {}, (), {}, frozenset(), {}, frozenset())


def plan(text: str, *, gains: bool = True) -> Plan:
    """The plan for a program in text form."""
    return plan_with(NNET, program(NNET, text), Stated(taps=[1] if gains else []))


IN_PLACE = """
    m1 = 64 x 4
    m2 = 64 x 12
    m3 = 60 x 4
    m1 = accept input
    m2 = undefined
    m2(:, 0:3) = below.propagate(m1)
    m2(0:59, 4:7) = m2(2:61, 0:3)
    m2(0:59, 8:11) = m2(4:63, 0:3)
    free m1
    m3 = undefined
    m3 = wide.propagate(m2(0:59, :))
    free m2
    provide output = m3
"""
"""An input whose first block is the output of the layer below."""

COPIED = """
    m1 = 64 x 4
    m2 = 60 x 12
    m3 = 60 x 4
    m1 = accept input
    m2 = undefined
    m2(:, 0:3) = m1(0:59, :)
    m2(:, 4:7) = m1(2:61, :)
    m2(:, 8:11) = m1(4:63, :)
    m3 = undefined
    m3 = wide.propagate(m2)
    free m2
    free m1
    provide output = m3
"""
"""An input all of whose blocks are copies."""

IN_TURN = """
    m1 = 68 x 4
    m2 = 64 x 12
    m3 = 64 x 12
    m4 = 60 x 4
    m1 = accept input
    m2 = undefined
    m2(:, 0:3) = m1(0:63, :)
    m2(:, 4:7) = m1(2:65, :)
    m2(:, 8:11) = m1(4:67, :)
    m3 = undefined
    m3(:, 0:3) = wide.propagate(m2)
    free m2
    m3(0:59, 4:7) = m3(2:61, 0:3)
    m3(0:59, 8:11) = m3(4:63, 0:3)
    free m1
    m4 = undefined
    m4 = wide.propagate(m3(0:59, :))
    free m3
    provide output = m4
"""
"""Two splices, one right after the other."""

BACKWARD = """
    m1 = 64 x 4
    m2 = 60 x 12
    m3 = 60 x 4
    m4 = 60 x 4
    m5 = 60 x 12
    m6 = 64 x 4
    m1 = accept input
    m3 = zeros
    segment end
    m4 = accept output
    m2 = undefined
    m2(:, 0:3) = m1(0:59, :)
    m2(:, 4:7) = m1(2:61, :)
    m2(:, 8:11) = m1(4:63, :)
    m5 = zeros
    m5 = wide.backprop(m4, input m2)
    free m2
    m6 = zeros
    m6(0:59, :) = m5(:, 0:3)
    m6(2:61, :) += m5(:, 4:7)
    m6(4:63, :) += m5(:, 8:11)
    free m5
"""
"""An input that is spliced twice, and its derivative."""


def test_block_in_place() -> None:
    """The other blocks are copies of the first block's rows, and of rows beyond it."""
    found = plan(IN_PLACE)

    taps = Taps(Area(2, 0, 64, 0, 4), 3, 2)
    assert found == NOTHING._replace(inputs={7: taps}, left_out=frozenset([3, 4]))
    assert (taps.rows, taps.offsets) == (60, (0, 2, 4))


def test_copied_blocks() -> None:
    """If all blocks are copies, the input's matrix is not filled."""
    found = plan(COPIED)

    taps = Taps(Area(1, 0, 64, 0, 4), 3, 2)
    assert found == NOTHING._replace(
        inputs={6: taps}, idle=frozenset([6]), left_out=frozenset([2, 3, 4])
    )


def test_one_splice_after_another() -> None:
    """An affine map's output is kept although its own input's matrix is not filled."""
    found = plan(IN_TURN)

    assert {at: taps.area.matrix for at, taps in found.inputs.items()} == {6: 1, 12: 3}
    assert found.idle == {6}


def test_part_of_copied_rows() -> None:
    """An input can be part of the copied rows, and each copy can begin at another row."""
    found = plan(
        COPIED.replace("m2 = 60 x 12", "m2 = 64 x 12")
        .replace("m2(:, 0:3) = m1(0:59, :)", "m2(:, 0:3) = m1")
        .replace("m2(:, 4:7) = m1(2:61, :)", "m2(2:61, 4:7) = m1(3:62, :)")
        .replace("m2(:, 8:11) = m1(4:63, :)", "m2(2:61, 8:11) = m1(4:63, :)")
        .replace("m3 = wide.propagate(m2)", "m3 = wide.propagate(m2(2:61, :))")
    )

    assert found.inputs == {6: Taps(Area(1, 2, 64, 0, 4), 3, 1)}


def test_derivative() -> None:
    """The blocks of a splice's derivative are summed before they are added to that of the rows."""
    found = plan(BACKWARD)

    assert found.inputs == {9: Taps(Area(1, 0, 64, 0, 4), 3, 2)}
    taps = Taps(Area(6, 0, 64, 0, 4), 3, 2)
    assert found.derivatives == {9: SplicedDerivative(5, taps, (12, 13, 14))}
    assert found.idle == {9}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m1(4:63, :)", "m1(3:62, :)"),  # distances differ
        ("m1(0:59, :)", "m1(4:63, :)"),  # and here, too
        ("m2(:, 4:7) = m1(2:61, :)", "m2(:, 4:7) = 0.5 * m1(2:61, :)"),
        ("m3 = undefined", "m3 = undefined\nm1 = constant 0.5"),  # the source changes
        ("m3 = undefined", "m3 = undefined\nm2(5:5, 4:7) += m1(5:5, :)"),  # a block changes
        ("m2(:, 8:11) = m1(4:63, :)", "m2(:, 8:11) = constant 0.5"),  # a block is no copy
        ("m2(:, 8:11) = m1(4:63, :)", "m2(0:3, 8:11) = m1(4:7, :)"),  # only a part is one
        ("m2(:, 8:11) = m1(4:63, :)", "m2(:, 9:11) = m1(4:63, 1:3)"),  # widths differ
        ("m3 = undefined", "m3 = undefined\nfree m1"),
    ],
)
def test_inputs_that_are_no_splices(old: str, new: str) -> None:
    """A splice is not planned unless the blocks are the same rows at equal distances."""
    assert old in COPIED
    assert plan(COPIED.replace(old, new)).inputs == {}


def test_few_rows_are_left_alone() -> None:
    """Splices of few rows, such as steps of a recurrence, are not planned."""
    few = re.sub(r"\b(59|60|61|63|64)\b", lambda row: str(int(row[0]) - 20), COPIED)

    assert plan(few) == NOTHING


def test_components_that_gain_nothing() -> None:
    """A component that gains nothing by a splice gets none."""
    assert plan(COPIED, gains=False) == plan(BACKWARD, gains=False) == NOTHING


def test_copies_that_others_need() -> None:
    """Copies are made if anything else reads or changes them."""
    for use in ("m3 = m2(:, 4:7)", "m2(3:3, 4:7) = constant 0.0"):
        found = plan(COPIED.replace("free m2", f"{use}\nfree m2"))

        assert len(found.inputs) == 1
        assert found.left_out == {2, 4}
        assert not found.idle
    assert plan(COPIED.replace("free m2\n", "")).left_out == frozenset()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m5 = zeros", "m5 = undefined\nm5 = constant 1.0"),  # is added to
        ("m6(4:63, :) +=", "m6(3:62, :) +="),  # distances differ
        ("m6(4:63, :) +=", "m6(4:63, :) += 0.5 *"),
        ("m6(2:61, :) +=", "m6(2:61, :) ="),  # replaces what was added
        ("free m5", "m6(0:59, :) += m5(:, 4:7)\nfree m5"),  # a block is added twice
        ("free m5", "m4 = m5(:, 4:7)\nfree m5"),  # another use
        ("m6(4:63, :) +=", "m6(3:3, :) = constant 0.0\nm6(4:63, :) +="),  # the sum changes
        ("m6(4:63, :) += m5(:, 8:11)", ""),  # a block is not added
    ],
)
def test_derivatives_that_are_left_alone(old: str, new: str) -> None:
    """Derivatives are added up block by block if anything else uses them."""
    assert old in BACKWARD
    text = "\n".join(line for line in BACKWARD.replace(old, new).splitlines() if line.strip())

    assert plan(text).derivatives == {}


# ---- values ----


@st.composite
def requests(draw: st.DrawFn) -> tuple[Nnet, ComputationRequest]:
    """A network and a request: regular, with outputs at some frames, or of several lengths."""
    distance, step = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    nnet = spliced((-distance, 0, distance))
    lengths = draw(st.lists(st.integers(20, 40), min_size=1, max_size=3))
    if draw(st.booleans()):
        lengths = [lengths[0]] * len(lengths)
    has_deriv = draw(st.booleans())
    inputs, outputs = (
        np.array([(n, t, 0) for n, length in enumerate(lengths) for t in times(length)])
        for times in (lambda end: range(-distance, end + distance), lambda end: range(0, end, step))
    )
    asked = ComputationRequest(
        inputs=(IoSpecification(name="input", indexes=inputs, has_deriv=has_deriv),),
        outputs=(IoSpecification(name="output", indexes=outputs, has_deriv=has_deriv),),
        need_model_derivative=has_deriv,
    )
    return nnet, asked


def results(nnet: Nnet, asked: ComputationRequest, *, natural: bool) -> list[np.ndarray]:
    """The output and, if requested, the input derivative and the gradient."""
    has_deriv = asked.outputs[0].has_deriv
    device = DeviceNnet(
        nnet, trainable=has_deriv, natural_gradient=natural and has_deriv, dtype=np.float64
    )
    return passes(NnetComputer(device, CachingCompiler(nnet).compile(asked)))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allows tiles for small products."""
    for name in ("FEWEST_COLUMNS", "FEWEST_FIXED_ROWS", "FEWEST_CHANGING_ROWS"):
        monkeypatch.setattr(tiled_product, name, 1)


@given(requests(), st.booleans())
@settings(max_examples=3 * settings.default.max_examples // 10)
def test_values_are_the_same(case: tuple[Nnet, ComputationRequest], natural: bool) -> None:
    """For any rows, values are those of products with the spliced matrix."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splices, "FEWEST_ROWS", 8)
        by_taps = results(*case, natural=natural)
        patch.setenv("NNET3_TILES", "0")
        expected = results(*case, natural=natural)

    assert_near(by_taps, expected, 1e-9)


@pytest.mark.parametrize("width", [64, 256])
def test_values_of_one_splice_after_another(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a splice reads are not used as working memory, whatever its size."""
    monkeypatch.undo()  # of `_small`: the sizes are those of real networks
    monkeypatch.setenv("NNET3_TILES", "1")
    splice = "Append(Offset({0}, -1), {0}, Offset({0}, 1))"
    nnet = network(
        stacked(
            64,
            "a Affine input-dim=64 output-dim=128",
            "bounded RectifiedLinear dim=128",
            f"b Affine input-dim=384 output-dim={width} input={splice.format('bounded')}",
            f"c Affine input-dim={3 * width} output-dim={width} input={splice.format('b')}",
        )
    )
    asked = request(range(-2, 152), range(150), sequences=1, training=False)
    computation = CachingCompiler(nnet).compile(asked)

    by_tiles = passes(NnetComputer(nnet, computation))
    monkeypatch.setenv("NNET3_TILES", "0")

    assert_near(by_tiles, passes(NnetComputer(nnet, computation)))


@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("has_deriv", [False, True])
def test_regular_requests_have_splices(sequences: int, has_deriv: bool) -> None:
    """Splices of compiled computations are found, forward and backward, and not copied."""
    asked = request(range(-2, 62), range(60), sequences=sequences, training=has_deriv)

    found = plan_with(NNET, CachingCompiler(NNET).compile(asked), Stated(taps=[0, 1]))

    assert len(found.inputs) == 1 + has_deriv
    assert len(found.derivatives) == has_deriv
    assert {taps.distance for taps in found.inputs.values()} == {2 * sequences}
    assert len(found.left_out) == 2 + 2 * has_deriv


def test_loops_are_left_alone() -> None:
    """Splices in loops, whose commands do not run in order, are not planned."""
    text = COPIED.replace("m2 = undefined", "label\nm2 = undefined") + "    goto c1\n"

    assert plan(text) == NOTHING
