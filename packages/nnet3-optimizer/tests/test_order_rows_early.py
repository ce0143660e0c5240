"""Rows get the order of an output before layers widen them, if nothing else reads them."""

import pytest
from brief_computations import brief, draft, proven
from nnet3_optimizer.passes.order_rows_early import order_rows_early

TRAINING = """
    m3 = 4 x 8
    m4 = 4 x 8
    m5 = 4 x 8
    m6 = 4 x 8
    i0 = 1, 2, 0, 3
    i1 = 2, 0, 1, 3
    i2 = 3, -1, 0, 0
    m1 = accept input
    m2 = undefined
    m2 = m1[i2]
    m3 = zeros
    m3 = widen.propagate(m2)
    m4 = undefined
    m4 = m3[i0]
    provide output3 = m4
    segment end
    m5 = accept output3
    m6 = undefined
    m6 = m5[i1]
    m7 = zeros
    m7 = widen.backprop(m6, input m2)
    m8 = zeros
    m8 += m7
    provide input = m8
"""


def test_values_and_derivatives() -> None:
    """The lists of the narrow rows are composed with the order; wide rows are not moved."""
    lines = proven(TRAINING, order_rows_early)

    assert lines[8:10] == ["i0 = -1, 0, 3, 0", "i1 = 2, 0, 1, 3"]
    assert [line for line in lines[10:] if "free" not in line] == [
        "m1 = accept input",
        "m2 = undefined",
        "m2 = m1[i0]",
        "m3 = zeros",
        "m3 = widen.propagate(m2)",
        "m4 = undefined",
        "m4 = m3",
        "provide output3 = m4",
        "segment end",
        "m5 = accept output3",
        "m6 = undefined",
        "m6 = m5",
        "m7 = zeros",
        "m7 = widen.backprop(m6, input m2)",
        "m8 = zeros",
        "m8 += m7[i1]",
        "provide input = m8",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i0 = 1, 2, 0, 3", "i0 = 1, 2, 0, 0"),
        ("i0 = 1, 2, 0, 3", "i0 = 1, 2, 0, 7"),
        ("i1 = 2, 0, 1, 3", "i1 = 2, 1, 0, 3"),
        ("m4 = m3[i0]", "m4 = 2.0 * m3[i0]"),
        ("m7 = zeros\n", "m5 += m6\n    m7 = zeros\n    m7 += m5(:, 0:3)\n"),
        ("provide output3 = m4\n", "provide output3 = m4\n    m3 += m4\n"),
        ("m8 += m7\n", "m8 += m7\n    m8 += m2\n"),
        ("m2 = m1[i2]", "m2 = affine.propagate(m1)"),
        ("m8 += m7\n", "m8(0:1, :) += m7(0:1, :)\n    m8(2:3, :) += m7(2:3, :)\n"),
    ],
    ids=[
        "a row is lost",
        "there is no such row",
        "the derivative comes back in another order",
        "the output is scaled",
        "the derivative is used twice",
        "the values are changed",
        "the input is used otherwise",
        "the input is no copy",
        "the input derivative is taken in parts",
    ],
)
def test_orders_that_stay(old: str, new: str) -> None:
    """The draft stays the same if anything else depends on the order of rows."""
    text = TRAINING.replace(old, new)
    assert text != TRAINING

    assert brief(order_rows_early(draft(text))) == brief(draft(text))
