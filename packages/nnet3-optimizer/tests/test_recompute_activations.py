"""Activations are freed and recomputed where that lowers the peak and results stay the same."""

import functools

import pytest
from brief_computations import proven
from nnet3_compiler import compile_computation
from nnet3_descriptors import parse_config
from nnet3_optimizer import check_computation, optimize, verify_equivalent
from nnet3_optimizer.passes.recompute_activations import recompute_activations
from small_networks import request_for


def recomputed(text: str) -> list[str]:
    """The lines of a computation after recomputation, checked and proven."""
    return proven(text, functools.partial(recompute_activations, level=1))


SPLICE = """
    m1 = 6 x 4
    m2 = 6 x 8
    m1 = accept input
    m2 = undefined
    m2(:, 0:3) = affine.propagate(m1)
    free m1
    m2(0:3, 4:7) = m2(2:5, 0:3)
    m3 = undefined
    m3 = wide.propagate(m2(0:3, :))
    m4 = undefined
    m4 = affine2.propagate(m3)
    provide output = m4
    segment end
    m5 = accept output
    m6 = zeros
    m6 = affine2.backprop(m5, input m3)
    free m3
    free m5
    - = wide.backprop(m6, input m2(0:3, :))
    free m6
    free m2
"""


def test_part_from_which_the_rest_is_copied_is_kept() -> None:
    """Of an Append of one node at several times, only the node itself is kept."""
    lines = recomputed(SPLICE)

    kept = lines.index("m8 = affine.propagate(m1)")
    assert lines[kept + 1 : kept + 8] == [
        "free m1",
        "m2 = undefined",
        "m2(:, 0:3) = m8",
        "m2(0:3, 4:7) = m8(2:5, :)",
        "m3 = undefined",
        "m3 = wide.propagate(m2(0:3, :))",
        "free m2",
    ]
    again = lines.index("m7 = undefined")
    assert "segment end" in lines[kept:again]
    assert lines[again + 1 : again + 5] == [
        "m7(:, 0:3) = m8",
        "m7(0:3, 4:7) = m8(2:5, :)",
        "free m8",
        "- = wide.backprop(m6, input m7(0:3, :))",
    ]


def test_part_that_is_added_to_begins_with_zeros() -> None:
    """The matrix for a part is allocated like the whole, as components can add to it."""
    lines = recomputed(SPLICE.replace("m2 = undefined", "m2 = zeros"))

    assert "m8 = zeros" in lines[: lines.index("m8 = affine.propagate(m1)")]


def test_rows_are_copied_back() -> None:
    """Rows that were copied to the output in another order are copied back from it."""
    lines = recomputed(
        """
        i0 = 2, 0, 3, 1
        i1 = 1, 3, 0, 2
        m1 = accept input
        m2 = undefined
        m2 = sigmoid.propagate(m1)
        free m1
        m3 = undefined
        m3 = m2[i0]
        provide output = m3
        segment end
        m4 = accept output
        m5 = undefined
        m5 = m4[i1]
        free m4
        m6 = undefined
        m6 = sigmoid.backprop(m5, output m2)
        free m2
        free m5
        provide input = m6
        """
    )

    again = next(at for at, line in enumerate(lines) if line.endswith("= m3[i1]"))
    assert lines.index("free m2") < lines.index("segment end") < again


TWICE = """
input-node name=input dim=4
component name=below type=AffineComponent input-dim=4 output-dim=7
component-node name=below component=below input=input
component name=shared type=LinearComponent input-dim=7 output-dim=2
component-node name=many component=shared input=Switch(below, Offset(below, 1))
component-node name=one component=shared input=Switch(below, Offset(below, 1))
component name=relu type=RectifiedLinearComponent dim=2
component-node name=relu component=relu input=many
output-node name=output input=Append(relu, ReplaceIndex(one, t, 1))
"""


def test_rows_are_copied_back_from_a_part() -> None:
    """Only some rows of the source are copied back; a shared component reads the rest later."""
    nnet = parse_config(TWICE)
    request = request_for(range(-2, 7), range(4), derivs=["output"], need_model_derivative=True)
    compiled = compile_computation(nnet, request)

    optimized = optimize(nnet, compiled)

    check_computation(nnet, optimized)
    verify_equivalent(nnet, compiled, optimized)


BYPASS = """
    m1 = accept input
    m2 = undefined
    m2 = sigmoid.propagate(m1)
    m3 = undefined
    m3 = 0.5 * m1
    m3 += m2
    m3 = noop.propagate(m3)
    m4 = undefined
    m4 = affine.propagate(m3)
    provide output = m4
    segment end
    m5 = accept output
    m6 = zeros
    m6 = affine.backprop(m5, input m3)
    free m5
    m7 = undefined
    m7 = sigmoid.backprop(m6, output m2)
    free m2
    m7 += m3
    m7 += m1
    free m1
    free m3
    free m6
    provide input = m7
"""


def test_term_of_a_sum_is_the_sum_less_the_others() -> None:
    """The output of a layer with a bypass is recomputed from the sum that the next layer needs."""
    lines = recomputed(BYPASS)

    again = lines.index("m8 = m3")
    assert lines[again + 1] == "m8 += -0.5 * m1"
    assert lines.index("free m2") < lines.index("segment end") < again


@pytest.mark.parametrize(
    ("why", "old", "new"),
    [
        ("the sum changes", "m4 = undefined", "m3 = sigmoid.propagate(m3)\n    m4 = undefined"),
        ("a term changes", "m4 = undefined", "m1 += m2\n    m4 = undefined"),
        ("the other term is scaled up", "0.5 * m1", "1.5 * m1"),
        ("it enters with a scale", "m3 += m2", "m3 += 0.5 * m2"),
        (
            "the user gets it",
            "provide output = m4",
            "provide output = m4\n    provide output2 = m2",
        ),
        ("the backward part changes it", "    m7 = undefined", "    m2 += m3\n    m7 = undefined"),
    ],
)
def test_terms_that_are_kept(why: str, old: str, new: str) -> None:
    """Nothing is recomputed if the result would differ, or be less exact."""
    text = BYPASS.replace(old, new)
    if "output2" in new:
        text = text.replace("    free m2\n", "")
    assert text != BYPASS

    lines = recomputed(text)

    assert not any(line.startswith("m8 = ") for line in lines), why


@pytest.mark.parametrize(("component", "is_kept"), [("sigmoid", False), ("relu", True)])
def test_what_a_rectifier_looks_at_is_kept(component: str, is_kept: bool) -> None:
    """Before a rectifier nothing is recomputed, as rounding errors would replace zeros."""
    twice = BYPASS.replace(
        "    free m2\n    m7 += m3\n", "    m7 += m2\n    free m2\n    m7 += m3\n"
    )
    assert twice != BYPASS  # signs of m2 are not enough

    lines = recomputed(twice.replace("sigmoid", component))

    assert ("m8 = m3" not in lines) == is_kept


def test_source_that_is_overwritten() -> None:
    """A splice stays if its source has other values by then."""
    changed = SPLICE.replace("    m4 = undefined", "    m2(0:3, 0:3) += m3\n    m4 = undefined", 1)

    lines = recomputed(changed)

    assert "- = wide.backprop(m6, input m2(0:3, :))" in lines


def test_source_of_two_recipes_counts_while_the_first_result_is_read() -> None:
    """A second recipe from one source is not followed if the source then makes a higher peak.

    `recomputed` asserts that the peak is no higher. If m2 were copied again too, m1 would live
    beside m3 and its derivative m9: 376 numbers, where 356 are the peak before.
    """
    lines = recomputed("""
        m1 = 30 x 4
        m2 = 12 x 4
        m3 = 12 x 8
        m4 = 12 x 4
        m5 = 4 x 8
        m6 = 12 x 4
        m8 = 4 x 8
        m9 = 12 x 8
        m11 = 12 x 4
        m12 = 15 x 4
        m1 = accept input
        m2 = undefined
        m2 = m1(0:11, :)
        m6 = undefined
        m6 = affine.propagate(m2)
        m5 = undefined
        m5(:, 4:7) = m6(0:3, :)
        free m6
        m3 = undefined
        m3(:, 0:3) = m1(12:23, :)
        m3(:, 4:7) = m1(13:24, :)
        m4 = undefined
        m4 = wide.propagate(m3)
        m5(:, 0:3) = m4(0:3, :)
        free m4
        m12 = undefined
        m12 = affine2.propagate(m1(0:14, :))
        free m1
        m5(:, 4:7) += m12(0:3, :)
        free m12
        m10 = undefined
        m10 = wide.propagate(m5)
        provide output = m10
        segment end
        m7 = accept output
        m8 = zeros
        m8 = wide.backprop(m7, input m5)
        free m7
        free m5
        m11 = zeros
        m11(0:3, :) = m8(:, 0:3)
        free m8
        m9 = zeros
        m9 = wide.backprop(m11, input m3)
        free m11
        free m3
        - = affine.backprop(m9(:, 0:3), input m2)
        free m9
        free m2
    """)

    assert "- = affine.backprop(m9(:, 0:3), input m2)" in lines
    assert "m9 = wide.backprop(m11, input m3)" not in lines
