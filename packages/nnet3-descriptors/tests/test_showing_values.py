"""Values ask nnet3-report for pictures, and do without where it is not installed."""

import sys

import pytest
from nnet3_descriptors import parse_config

NNET = parse_config(
    "input-node name=input dim=2\noutput-node name=output input=input objective=quadratic"
)


def test_no_picture_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nnet3-report is not installed, a notebook gets no picture and shows the text."""
    monkeypatch.setitem(sys.modules, "nnet3_report", None)

    assert NNET._repr_html_() is None
    assert NNET._repr_svg_() is None
