"""Tests of inputs and derivatives that are rows of many matrices, several times."""

from __future__ import annotations

import numpy as np
import pytest
from computations import program, request
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_compiler import NnetComputation
from nnet3_compiler import commands as c
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels.tiles import tiled_product
from nnet3_runtime_cuda.lowering.areas import Area
from nnet3_runtime_cuda.lowering.plan import gathered_splices
from nnet3_runtime_cuda.lowering.plan.gathered_splices import rows_of
from nnet3_runtime_cuda.lowering.plan.make import plan_with
from nnet3_runtime_cuda.lowering.plan.plan import GatheredRows, Plan, Taps
from stated_capabilities import Stated

CONFIG = """
input-node name=input dim=2
component name=steps type=NaturalGradientAffineComponent input-dim=5 output-dim=3
component-node name=steps component=steps input=Append(input, IfDefined(Offset(bounded, -DELAY)))
component name=bounded type=TanhComponent dim=3
component-node name=bounded component=bounded input=steps
component name=wide type=NaturalGradientAffineComponent input-dim=COLUMNS output-dim=4
component-node name=wide component=wide input=Append(OFFSETS)
component name=squashed type=TanhComponent dim=4
component-node name=squashed component=squashed input=wide
output-node name=output input=squashed
"""


def network(offsets: tuple[int, ...] = (-1, 0, 1), delay: int = 1) -> Nnet:
    """An affine map of several steps of a recurrence."""
    terms = ", ".join(f"Offset(bounded, {offset})" for offset in offsets)
    text = CONFIG.replace("OFFSETS", terms).replace("COLUMNS", str(3 * len(offsets)))
    return parse_config(text.replace("DELAY", str(delay)), rng=np.random.default_rng(0))


NNET = network()


def plan(text: str, *, gains: bool = True) -> Plan:
    """The plan for a program, given as its matrices, lists and commands."""
    return plan_with(NNET, program(NNET, text), Stated(taps=[2] if gains else []))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets small products be computed by tiles."""
    monkeypatch.setattr(gathered_splices, "FEWEST_ROWS", 8)
    for name in ("FEWEST_COLUMNS", "FEWEST_ROWS", "MANY_ROWS"):
        monkeypatch.setattr(tiled_product, name, 1)


ROWS = """
    m1 = 8 x 3
    m2 = 4 x 3
    m3 = 8 x 9
    m4 = 8 x 4
    j0 = m1[0:7]
    j1 = m1[2:7], m2[0:1]
    j2 = m1[4:7], m2[0:3]
"""
"""Matrices, and the rows of two of them for each block."""

FORWARD = (
    ROWS
    + """\
    m1 = undefined
    m2 = undefined
    m3 = undefined
    m3(:, 0:2) = rows(j0)
    m3(:, 3:5) = rows(j1)
    free m1
    m3(:, 6:8) = rows(j2)
    m4 = undefined
    m4 = wide.propagate(m3)
    free m3
    provide output = m4
"""
)
"""The rows are those of two matrices."""

BACKWARD = (
    ROWS
    + """\
    m1 = zeros
    m2 = zeros
    m4 = undefined
    m3 = zeros
    m3 = wide.backprop_no_update(m4)
    rows(j0) = m3(:, 0:2)
    rows(j1) += m3(:, 3:5)
    rows(j2) += m3(:, 6:8)
    free m3
"""
)
"""The derivative of such an input."""

TAPS = Taps(matrix=3, area=Area(0, 12, 0, 3), count=3, distance=2, is_packed=True)


def test_input() -> None:
    """All rows are gathered once, in the memory of the input."""
    found = plan(FORWARD)

    assert found.inputs == ()
    assert found.gathered == (GatheredRows(taps=TAPS, moves=(3, 4, 6), maps=(8,)),)
    expected = [(1, row) for row in range(8)] + [(2, row) for row in range(4)]
    rows = rows_of(program(NNET, FORWARD), found.gathered[0])
    assert rows.tolist() == [list(pair) for pair in expected]


def test_derivative() -> None:
    """The derivative is summed up before it is added to the rows."""
    found = plan(BACKWARD)

    assert found.derivatives == ()
    assert found.scattered == (GatheredRows(taps=TAPS, moves=(5, 6, 7), maps=(4,)),)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("j1 = m1[2:7], m2[0:1]", "j1 = m1[3:7], m2[0:2]"),  # distances differ
        ("j2 = m1[4:7], m2[0:3]", "j2 = m1[4:7], m2[0:2], m1[0:0]"),  # a row comes twice
        ("j0 = m1[0:7]", "j0 = -, m1[1:7]"),  # a row is left out
        ("j0 = m1[0:7]", "j0 = m3(:, 0:2)[0], m1[1:7]"),  # a row of the input itself
        ("m3(:, 3:5) = rows(j1)", "m3(:, 3:5) = 0.5 * rows(j1)"),
        ("m3(:, 6:8) = rows(j2)", "m2 = constant 0.5\nm3(:, 6:8) = rows(j2)"),  # rows change
        ("m3(:, 6:8) = rows(j2)", "m3(:, 6:8) += rows(j2)"),
        ("m4 = wide.propagate(m3)", "m2 = m3(0:3, 0:2)\nm4 = wide.propagate(m3)"),  # another use
        ("m4 = wide.propagate(m3)", "m4 = wide.propagate(m3)\nm3 = constant 0.5"),
        ("m3(:, 6:8) = rows(j2)", ""),  # a block is something else
    ],
)
def test_inputs_that_are_left_alone(old: str, new: str) -> None:
    """An input is copied block by block if its rows are not the same at equal distances."""
    assert old in FORWARD
    text = "\n".join(line for line in FORWARD.replace(old, new).splitlines() if line.strip())

    found = plan(text)

    assert found.inputs == found.gathered == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m3 = zeros", "m3 = undefined\nm3 = constant 1.0"),  # is added to
        ("rows(j1) += m3", "rows(j1) += 0.5 * m3"),
        ("rows(j1) += m3", "rows(j1) = m3"),  # replaces what was added
        ("rows(j1) += m3", "m1 = constant 0.5\nrows(j1) += m3"),  # the sum changes
        ("free m3", "m4 = m3(:, 0:3)\nfree m3"),  # another use
        ("rows(j2) += m3(:, 6:8)", ""),  # a block is not added
        ("m3 = wide.backprop_no_update(m4)", ""),  # nothing to be summed up
    ],
)
def test_derivatives_that_are_left_alone(old: str, new: str) -> None:
    """Derivatives are added block by block if anything else happens to them."""
    assert old in BACKWARD
    text = "\n".join(line for line in BACKWARD.replace(old, new).splitlines() if line.strip())
    text = text.replace("m4 = m3(:, 0:3)", "m4(:, 0:2) = m3(:, 0:2)")

    found = plan(text)

    assert found.derivatives == found.scattered == ()


def test_components_that_gain_nothing() -> None:
    """A plan has only what the component gains by."""
    assert (
        plan(FORWARD, gains=False)
        == plan(BACKWARD, gains=False)
        == Plan(components=NNET.component_names)
    )


# ---- values ----


def results(nnet: Nnet, computation: NnetComputation, threads: int) -> list[np.ndarray]:
    """The output, the input derivative and the gradient, from random values."""
    rng = np.random.default_rng(1)
    device = DeviceNnet(nnet, trainable=True, natural_gradient=True, dtype=np.float64)
    computer = NnetComputer(device, computation, threads=threads)
    rows_in, rows_out = (
        computation.matrices[computation.submatrices[command.matrix, 0], 0]
        for kind in (c.AcceptInput, c.ProvideOutput)
        for command in computation.commands[: computation.forward_end]
        if isinstance(command, kind)
    )
    output = computer.forward({"input": rng.standard_normal((rows_in, 2))})["output"].copy()
    derivative = computer.backward({"output": rng.standard_normal((rows_out, 4))})["input"].copy()
    return [output, derivative, device.direction.copy()]


@given(
    st.sampled_from([(-1, 0, 1), (-1, 1), (-2, 0, 2), (0, 3, 6)]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(12, 30),
    st.integers(1, 2),
)
@settings(max_examples=20)
def test_values_are_the_same(
    offsets: tuple[int, ...], delay: int, sequences: int, frames: int, threads: int
) -> None:
    """Whatever the rows, values are those of products with the spliced matrix."""
    nnet = network(offsets, delay)
    asked = request(range(-8, frames + 8), range(frames), sequences=sequences)
    computation = CachingCompiler(nnet).compile(asked)
    by_taps = results(nnet, computation, threads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNET3_TILES", "0")
        expected = results(nnet, computation, threads)

    for ours, theirs in zip(by_taps, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * abs(theirs).max())


@pytest.mark.parametrize("sequences", [1, 3])
def test_steps_of_a_recurrence_are_gathered(sequences: int) -> None:
    """Compiled computations are recognised, forward and backward."""
    asked = request(range(-8, 38), range(30), sequences=sequences)

    found = plan_with(NNET, CachingCompiler(NNET).compile(asked), Stated(taps=range(4)))

    (gathered,), (scattered,) = found.gathered, found.scattered
    assert gathered.taps.distance == scattered.taps.distance == sequences
    assert (len(gathered.moves), len(gathered.maps)) == (3, 2)
    assert (len(scattered.moves), len(scattered.maps)) == (3, 1)
    assert found.inputs == found.derivatives == ()
