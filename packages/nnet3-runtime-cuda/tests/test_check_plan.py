"""Tests of the check of plans: it refuses plans with one wrong part."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
import test_known_inputs
import test_splices
from computations import program
from nnet3_computation import ComputationError, NnetComputation
from nnet3_descriptors import InputNode, Nnet
from nnet3_descriptors.structure import NetworkFingerprint
from nnet3_runtime_cuda import Plan, PlanError, check_plan
from nnet3_runtime_cuda.lowering import check
from nnet3_runtime_cuda.lowering.areas import Area, Place
from nnet3_runtime_cuda.lowering.check.cells import BOTH, Cells
from nnet3_runtime_cuda.lowering.check.moves import move
from nnet3_runtime_cuda.lowering.plan import deferred_outputs, step_panels
from nnet3_runtime_cuda.lowering.plan.make import plan_with
from plan_programs import OUTPUTS, ROWS
from stated_capabilities import Stated

Planned = tuple[Nnet, NnetComputation, Plan]


def copied() -> Planned:
    """An input whose blocks are all copies."""
    nnet = test_splices.NNET
    return nnet, program(nnet, test_splices.COPIED), test_splices.plan(test_splices.COPIED)


def backward() -> Planned:
    """An input of three blocks, and its derivative."""
    nnet, text = test_splices.NNET, test_splices.BACKWARD + "    provide input = m6\n"
    return nnet, program(nnet, text), test_splices.plan(text)


def recurrent() -> Planned:
    """Steps with products computed before and after the steps, and parameters in panels."""
    nnet = test_known_inputs.network(-1)
    computation = test_known_inputs.program(nnet, derivatives=True)
    split = [nnet.component_index("gates")]
    return nnet, computation, plan_with(nnet, computation, Stated(split=split, panels=True))


def projected() -> Planned:
    """Steps with the last columns of their outputs put off."""
    nnet = test_splices.NNET
    computation = program(nnet, OUTPUTS)
    return nnet, computation, plan_with(nnet, computation, Stated(split=[0], deferring=[0]))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deferred_outputs, step_panels):
        monkeypatch.setattr(module, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(deferred_outputs, "MOST_ROWS", ROWS)


@pytest.mark.parametrize("make", [copied, backward, recurrent, projected])
def test_plans_that_are_right(make: Callable[[], Planned]) -> None:
    """The plans for these programs pass."""
    nnet, computation, plan = make()

    assert plan != Plan(components=nnet.component_names)
    check_plan(nnet, computation, plan)


def test_a_plan_for_another_network() -> None:
    """A computation is checked with the network that it was compiled for."""
    nnet, computation, plan = recurrent()
    compiled = attrs.evolve(computation, network=NetworkFingerprint.of(nnet))
    other = attrs.evolve(nnet, nodes=[*nnet.nodes, InputNode(name="more", dim=1)])

    check_plan(nnet, compiled, plan)
    with pytest.raises(ComputationError, match="network"):
        check_plan(other, compiled, plan)


def test_rows_of_nothing() -> None:
    """Rows that a list omits are zero, whatever the last submatrix is."""
    nnet = test_splices.NNET
    computation = program(
        nnet,
        """
        m1 = 2 x 4
        m2 = 3 x 4
        m3 = 1 x 1
        j0 = m1[0:0], -, m1[1:1]
        m2 = rows(j0)
        """,
    )

    cells = Cells(computation, [[0], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1]])

    move(cells, computation, computation.commands[0], BOTH)

    target, source = cells.of_matrix(2), cells.of_matrix(1)
    np.testing.assert_array_equal(target[:, [0, 2]], source)
    np.testing.assert_array_equal(target[:, 1], 0)


def changed(plan: Plan, path: str, value: object) -> Plan:
    """A plan with one field of its parts replaced.

    Args:
        plan: The plan.
        path: A path such as "inputs.0.taps.distance": names of fields, and numbers of members of
            tuples.
        value: The new value; a function of the old one.
    """

    def put(part: object, names: list[str]) -> object:
        if not names:
            return value(part) if callable(value) else value
        name, *rest = names
        if isinstance(part, Place):
            return part._replace(**{name: put(getattr(part, name), rest)})
        if isinstance(part, tuple):
            number = int(name) % len(part)
            return (*part[:number], put(part[number], rest), *part[number + 1 :])
        return attrs.evolve(part, **{name: put(getattr(part, name), rest)})

    found = put(plan, path.split("."))
    assert isinstance(found, Plan)
    return found


def below(area: Area) -> Area:
    """The area moved up by one row."""
    return attrs.evolve(area, row=area.row - 1, row_end=area.row_end - 1)


WRONG = [
    # inputs
    (copied, "inputs.0.position", 99, "c99 is to be Propagate or Backprop, but there is no such"),
    (copied, "inputs.0.position", 5, "c5 is to be Propagate or Backprop, but is AllocMatrixUn"),
    (copied, "inputs.0.taps.distance", 1, "c6: 3 taps, 1 rows apart, of m1(0:63, 0:3) do not"),
    (copied, "inputs.0.taps.count", 2, "c6: 2 taps, 2 rows apart"),
    (copied, "inputs.0.taps.matrix", 2, "c6: m2(0:63, 0:3) is no area of a 60 x 12 matrix"),
    (copied, "inputs.0.copies", (1,), "c1 is to be MatrixCopy, but is AllocMatrixUndefined"),
    (copied, "inputs", (), "c2 is left out, but no input does without it"),
    (copied, "inputs.0.copies", (2, 3), "c4 is left out, but no input does without it"),
    (backward, "inputs.0.taps.area", below, "is no area of a 64 x 4 matrix"),
    # derivatives
    (backward, "derivatives.0.matrix", 2, "m2 is not the matrix of the input derivative"),
    (backward, "derivatives.0.added", (12, 13), "c16: ProvideOutput: what is provided is not"),
    (backward, "derivatives.0.added", (13, 14, 12), "positions must ascend"),
    (backward, "derivatives.0.position", 5, "c5 is to be Backprop or BackpropNoModelUpdate"),
    (backward, "derivatives", lambda all_: (*all_, *all_), "c9 has two sums"),
    # steps
    (recurrent, "components", ("a",), "of a network with other components"),
    (recurrent, "early.0.steps.1.rows", (0, 2), "the first columns of the input, in the product"),
    (recurrent, "early.0.steps.1.rows", (0, 3), "cannot have rows 0:2 of"),
    (recurrent, "early.0.steps", lambda steps: steps[::-1], "positions must ascend"),
    (recurrent, "early.0.component", 0, "runs component 1, the plan says component 0"),
    (recurrent, "early.0.source.area", below, "is no area of"),
    (recurrent, "late.0.steps.1.rows", (0, 2), "the output derivative, kept in"),
    (recurrent, "late.0.steps.1.target.area", below, "which is left out, copies to"),
    (recurrent, "late.0.steps.1.copied", 0, "c0 is to be MatrixCopy"),
    (recurrent, "late.0.kept.matrix", 999, "there is no matrix m999"),
    (projected, "outputs.0.component", 1, "runs component 0, the plan says component 1"),
    (projected, "outputs.0.split", 0, "0 are no first columns of 4"),
    (projected, "outputs.0.split", 3, "puts off m2(0:3, 2:3), which are not its last columns"),
    (projected, "outputs.0.steps.1.target.area", below, "m2(3:6, 2:3), which are not its last"),
    (projected, "outputs.0.steps.1.rows", (3, 7), "has rows 4:7 of the product (got 3:6)"),
    (projected, "outputs.0.steps", lambda steps: steps[::-1], "positions must ascend"),
    (projected, "outputs", lambda all_: (*all_, *all_), "has two outputs put off"),
    (projected, "outputs.0.steps.0.position", 0, "c0 is to be Propagate"),
    (recurrent, "panels.0.skipped", 1, "panels without 1 columns, but 6 are computed elsewhere"),
    (recurrent, "panels.0.memory", 7, "there is no memory 7 for panels"),
    (recurrent, "panel_memory.0", 3, "are larger than memory 0, which has 3"),
]


@pytest.mark.parametrize(("make", "path", "value", "message"), WRONG)
def test_plans_that_are_wrong(
    make: Callable[[], Planned], path: str, value: object, message: str
) -> None:
    """A plan with one wrong part is refused, and the message says where."""
    nnet, computation, plan = make()

    with pytest.raises(PlanError, match=re.escape(message)):
        check_plan(nnet, computation, changed(plan, path, value))


def test_the_check_shares_nothing_with_the_makers() -> None:
    """The check's modules import only the values of plans and areas from lowering."""
    folder = Path(inspect.getfile(check)).parent
    package = check.__name__.partition(".")[0]
    imports = {
        (node.module.removeprefix(f"{package}."), alias.name)
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(package)
        for alias in node.names
    }

    others = {
        (module, name)
        for module, name in imports
        if module != "lowering.plan.plan" and not module.startswith("lowering.check.")
    }
    areas = "lowering.areas"
    assert others == {(areas, "Area"), (areas, "Place"), ("errors", "PlanError")}
