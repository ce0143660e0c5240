"""Computations for people: the output of `print`, and representations in notebooks."""

import html.parser
import re

import numpy as np
import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import NnetComputation
from nnet3_computation.memory import peak_bytes, with_memory_plan
from nnet3_report import memory_svg, with_unit
from small_networks import network, request_for, stacked


@pytest.fixture(scope="module")
def computation() -> NnetComputation:
    """One affine map, 4 rows."""
    nnet = network(stacked(3, "affine Affine input-dim=3 output-dim=2"))
    return compile_computation(nnet, request_for(range(4), range(4)))


def test_print(computation: NnetComputation) -> None:
    """A printed computation has matrices and commands, but not the tables for programs."""
    lines = str(computation).splitlines()

    assert lines[0] == repr(computation)
    assert lines[1] == "m1 = 4 x 3"
    assert "c0: m1 = accept node0" in lines
    assert "c5: m3 = component0.propagate(m2)" in lines
    assert len(lines) == 1 + (len(computation.matrices) - 1) + len(computation.commands)


def test_repr_of_commands(computation: NnetComputation) -> None:
    """A few commands are shown completely; of many, the first and the last."""
    assert repr(computation.commands[:1]) == "CommandSequence([AcceptInput(matrix=1, node=0)])"
    assert repr(computation.commands) == (
        f"<CommandSequence of {len(computation.commands)} commands, AcceptInput(matrix=1, node=0) "
        f"to {computation.commands[-1]!r}>"
    )


def test_what_notebooks_show(computation: NnetComputation) -> None:
    """The page is well formed, and states the request and the memory."""
    page = with_memory_plan(computation)._repr_html_()
    parser = Elements()
    parser.feed(page)

    assert parser.open == []
    assert f"matrices of at most {peak_bytes(computation)} bytes at a time, planned in" in page
    assert ">given</td>" in page
    assert ">wanted</td>" in page
    assert "c0: m1 = accept node0" in page


class Elements(html.parser.HTMLParser):
    """Checks that each element that begins also ends."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Pushes an element."""
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Ignores an element without content."""

    def handle_endtag(self, tag: str) -> None:
        """Pops the element that ends."""
        assert self.open.pop() == tag


def test_long_curves_keep_their_peak() -> None:
    """A curve of thousands of commands is drawn with a few hundred points and its maximum."""
    values = np.ones(10_000, np.int64)
    values[1234] = 4_000_000

    picture = memory_svg({"matrices": values})

    assert ">4 MB</text>" in picture
    assert picture.count(" L ") <= 400


def test_levels_are_round_numbers() -> None:
    """The levels at the left are round numbers from 0 to above the curves."""
    picture = memory_svg({"matrices": np.array([100_000, 12_400_000, 200_000], np.int64)})

    levels = re.findall(r'class="tick"[^>]*>([^<]*)<', picture)
    assert levels == ["0 bytes", "5 MB", "10 MB", "15 MB"]


def test_names_of_curves_lie_apart() -> None:
    """Labels of curves with the same end are one above the other, within the frame."""
    picture = memory_svg({name: np.array([9, 0], np.int64) for name in ("one", "two", "three")})

    at = [float(y) for y in re.findall(r'class="legend[^>]* y="([^"]*)"', picture)]
    assert at == [208, 192, 176]


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 bytes"), (999, "999 bytes"), (1.5e6, "1.5 MB")]
)
def test_units(number: float, said: str) -> None:
    """Bytes are stated in the largest unit that does not exceed them."""
    assert with_unit(number) == said
