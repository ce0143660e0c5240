"""Programs for plans, as texts; tests change single lines."""

from __future__ import annotations

ROWS, STEPS = 4, 4
"""Rows of a step of a recurrence, and number of steps."""


def _step_rows(step: int) -> str:
    return f"{ROWS * step}:{ROWS * step + ROWS - 1}"


def _forward_step(step: int) -> str:
    return f"""\
    m2 = undefined
    m2(:, 0:7) = m1({_step_rows(step)}, :)
    m2(:, 8:11) = m3
    m3 = wide.propagate(m2)
    free m2
"""


EARLY = f"""\
    m1 = 16 x 8
    m2 = 4 x 12
    m3 = 4 x 4
    m4 = 16 x 8
    m1 = undefined
    m1(:, 0:3) = below.propagate(m4(:, 0:3))
    m1(:, 4:7) = below.propagate(m4(:, 4:7))
    m3 = zeros
{"".join(_forward_step(step) for step in range(STEPS))}\
    provide output = m3
"""
"""Steps whose first columns are rows of m1, one after another."""


_EARLY_SIZES = """\
    m1 = 16 x 8
    m2 = 4 x 12
    m3 = 4 x 12
    m4 = 4 x 12
    m5 = 4 x 4
    m6 = 16 x 8
    m1 = undefined
    m1(:, 0:3) = below.propagate(m6(:, 0:3))
    m1(:, 4:7) = below.propagate(m6(:, 4:7))
    m5 = zeros
"""
_EARLY_COPIES = "".join(
    f"    m{2 + step} = zeros\n    m{2 + step}(:, 0:7) = m1({_step_rows(step)}, :)\n"
    for step in range(3)
)
_EARLY_STEPS = "".join(f"    m5 = wide.propagate(m{2 + step})\n" for step in range(3))

EARLY_FREED = _EARLY_SIZES + _EARLY_COPIES + "    free m1\n    m6 = undefined\n" + _EARLY_STEPS
"""The same, but the source is freed before the first step."""

EARLY_LOOP_OF_STEPS = (
    f"{_EARLY_SIZES}{_EARLY_COPIES}    label\n{_EARLY_STEPS}    m1 = constant 0.5\n    goto c10\n"
)
"""Steps whose copies are made before a loop, which changes their source."""

EARLY_LOOP_BETWEEN_STEPS = "\n".join(
    [
        *EARLY.splitlines()[:18],
        "    label",
        *EARLY.splitlines()[18:-1],
        "    goto c14",
    ]
)
"""Two steps before a loop, and two in it."""

EARLY_WHOLE = """\
    m1 = 16 x 12
    m2 = 4 x 12
    m3 = 4 x 4
    m1 = undefined
    m1(:, 0:3) = below.propagate(m3)
    m2 = undefined
    m2 = m1(0:3, :)
    m3 = wide.propagate(m2)
    m2 = m1(4:7, :)
    m3 = wide.propagate(m2)
    m2 = m1(8:11, :)
    m3 = wide.propagate(m2)
"""
"""Steps all of whose columns are copies."""


def _backward_step(step: int) -> str:
    following = ""
    if step + 1 < STEPS:
        following = f"    m3({_step_rows(step + 1)}, :) += m2(:, 8:11)\n"
    return f"""\
    m2 = zeros
    m2 = wide.backprop_no_update(m3({_step_rows(step)}, :))
    m1({_step_rows(step)}, :) = m2(:, 0:7)
{following}\
    free m2
"""


LATE = f"""\
    m1 = 16 x 8
    m2 = 4 x 12
    m3 = 16 x 4
    m4 = 4 x 4
    m5 = 4 x 8
    m6 = 16 x 4
    m1 = zeros
    m4 = zeros
    m6 = zeros
    segment end
    m3 = accept output
{"".join(_backward_step(step) for step in range(STEPS))}\
    provide input = m1
"""
"""Steps whose first columns of input derivative are copied to rows of m1."""

LATE_COPIED_LATER = """\
    m1 = 8 x 8
    m2 = 4 x 12
    m3 = 8 x 4
    m4 = 4 x 12
    m5 = 4 x 4
    segment end
    m3 = accept output
    m1 = undefined
    m2 = zeros
    m2 = wide.backprop_no_update(m3(0:3, :))
    m4 = zeros
    m4 = wide.backprop_no_update(m3(4:7, :))
    m1(4:7, :) = m4(:, 0:7)
    m1(0:3, :) = constant 0.5
    m5 = squashed.propagate(m1(0:3, 0:3))
    m1(0:3, :) = m2(:, 0:7)
    free m2
    free m4
    provide input = m1
"""
"""Steps with two targets, the first of which is overwritten after the last step."""

COPIED = """\
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
    provide output = m3
"""
"""An input whose three blocks are rows of m1."""

SUMMED = """\
    m1 = 60 x 4
    m2 = 60 x 12
    m3 = 64 x 4
    m4 = 60 x 12
    m4 = zeros
    segment end
    m1 = accept output
    m2 = zeros
    m2 = wide.backprop(m1, input m4)
    m3 = zeros
    m3(0:59, :) = m2(:, 0:3)
    m3(2:61, :) += m2(:, 4:7)
    m3(4:63, :) += m2(:, 8:11)
    free m2
    provide input = m3
"""
"""An input derivative whose three blocks are added to rows of m3."""

PANELS = """\
    m1 = 8 x 12
    m2 = 8 x 4
    m2 = undefined
    m2 = wide.propagate(m1)
    m2 = wide.propagate(m1)
    m2 = below.propagate(m1(:, 0:3))
    m2 = below.propagate(m1(:, 0:3))
"""
"""Steps of one component, followed by steps of another."""

PANELS_IN_LOOP = """\
    m1 = 8 x 12
    m2 = 8 x 4
    m2 = undefined
    m2 = wide.propagate(m1)
    label
    m2 = wide.propagate(m1)
    m2 = below.propagate(m1(:, 0:3))
    m2 = below.propagate(m1(:, 0:3))
    goto c2
"""
"""The same, but the first step is in a loop."""


def _output_step(step: int) -> str:
    rows, after = _step_rows(step), _step_rows(step + 1)
    following = f"    m1({after}, 2:3) = m2({rows}, 0:1)\n" if step + 1 < STEPS else ""
    return f"    m2({rows}, :) = below.propagate(m1({rows}, :))\n{following}"


OUTPUTS = f"""\
    m1 = 16 x 4
    m2 = 16 x 4
    m3 = 16 x 4
    m1 = zeros
    m2 = zeros
{"".join(_output_step(step) for step in range(STEPS))}\
    m3 = squashed.propagate(m2)
    provide output = m3
"""
"""Steps whose last two columns are read after all steps."""

OUTPUTS_IN_LOOP = "\n".join(
    [*OUTPUTS.splitlines()[:9], "    label", *OUTPUTS.splitlines()[9:], "    goto c6"]
)
"""Two such steps before a loop, and two in it."""

OUTPUTS_READ_EARLY = """\
    m1 = 8 x 4
    m2 = 8 x 4
    m3 = 4 x 4
    m4 = 4 x 12
    m5 = 4 x 4
    m1 = zeros
    m2 = zeros
    m5 = zeros
    m2(4:7, :) = below.propagate(m1(0:3, :))
    m1(4:7, 2:3) = m2(4:7, 0:1)
    m4 = undefined
    m4(:, 0:3) = m2(0:3, :)
    m5 = wide.propagate(m4)
    m3 = below.propagate(m1(4:7, :))
    m4(:, 0:3) = m2(4:7, :)
    m5 = wide.propagate(m4)
    provide output = m5
"""
"""The last columns of the first step are copied after the second step, but a product made early
reads them before it."""
