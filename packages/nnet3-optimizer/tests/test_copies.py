"""Copies are made early only where results stay the same."""

import pytest
from brief_computations import NNET, brief, computation, draft
from nnet3_computation import peak_bytes
from nnet3_optimizer import check_computation, verify_equivalent
from nnet3_optimizer.passes.gather_early import gather_early
from nnet3_optimizer.passes.renumber import renumber

GATHERED = """
    m2 = 2 x 8
    m3 = 2 x 8
    m1 = accept input
    m2 = zeros
    m2 = widen.propagate(m1(0:1, :))
    m3 = zeros
    m3 = widen.propagate(m1(2:3, :))
    m4 = undefined
    m4 = sigmoid.propagate(m1)
    free m1
    provide output = m4
    segment end
    m6 = accept output
    m5 = undefined
    m5(0:1, :) = m3(:, 0:3)
    m6(0:1, :) += m3(:, 0:3)
    m5(2:3, :) = m2(:, 0:3)
    free m2
    free m3
    m6 += m5
    free m5
    provide input = m6
"""


def test_parts_are_gathered_as_soon_as_they_are_there() -> None:
    """Only the parts of matrices that the backward part reads outlive the forward part."""
    after = renumber(gather_early(draft(GATHERED))).computation()
    check_computation(NNET, after)
    verify_equivalent(NNET, computation(GATHERED), after)
    lines = brief(after).splitlines()

    assert lines.index("m5(2:3, :) = m2(:, 0:3)") < lines.index("m3 = zeros")
    assert lines.index("free m3") < lines.index("segment end")
    assert "m6(0:1, :) += m5(0:1, :)" in lines
    assert peak_bytes(after) <= peak_bytes(computation(GATHERED))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m5(2:3, :) = m2(:, 0:3)", "m5(2:3, :) = 2.0 * m2(:, 0:3)"),
        ("m5(2:3, :) = m2(:, 0:3)", "m5(0:1, :) = m2(:, 0:3)"),
        ("m6(0:1, :) += m3(:, 0:3)", "m6(0:1, :) += m3(:, 4:7)"),
        ("m6(0:1, :) += m3(:, 0:3)", "m3 += m2"),
        ("m6(0:1, :) += m3(:, 0:3)", "m6 += m5"),
    ],
    ids=["scaled", "over one another", "another part is used", "changed", "read in between"],
)
def test_parts_that_stay(old: str, new: str) -> None:
    """Copies stay in place if values would differ, or the source must be kept anyway."""
    text = GATHERED.replace(old, new)
    assert text != GATHERED

    assert brief(gather_early(draft(text))) == brief(draft(text))
