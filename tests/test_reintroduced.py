"""The table of faults that reintroduced.py puts back is true of today's sources and tests."""

from __future__ import annotations

import ast

import attrs
import pytest
from reintroduced import ROOT, TABLE, Fault, judge, read_faults

FAULTS = tuple(read_faults(TABLE.read_text(encoding="utf-8")))


def test_faults_have_names_of_their_own() -> None:
    """No fault stands in the table twice."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_put_back(fault: Fault) -> None:
    """Its mended lines are there once, and what replaces them is Python, as its tests are there."""
    assert fault.is_mended_once
    assert fault.mended != fault.wrong
    if fault.file.endswith(".py"):
        ast.parse(fault.wrong_text)
    for test in fault.tests:
        file, _, place = test.partition("::")
        names = [part for part in place.partition("[")[0].split("::") if part]
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {each.name for each in ast.walk(tree) if hasattr(each, "name")}
        assert defined.issuperset(names), test


def test_what_is_caught() -> None:
    """A fault counts as caught if its tests fail, and not if they pass or it is not there."""
    name = "A graph gives ids of other nodes for a node that does not exist"
    (fault,) = (each for each in FAULTS if each.name == name)

    assert judge(fault) == "caught"
    assert judge(attrs.evolve(fault, wrong=fault.mended)).startswith("NOT caught: pytest")
    assert judge(attrs.evolve(fault, mended="no line\n")).startswith("NOT caught: the mended")
