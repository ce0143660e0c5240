"""Each rule for making plans is needed, and the check notices when it is broken.

A test removes a rule from the source of a maker, which then makes a plan that the check refuses.
Conditions that only decide what is faster are in PAYS.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import types

import attrs
import pytest
import test_splices
from computations import program
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import Plan, PlanError, check_plan
from nnet3_runtime_cuda.lowering.plan import (
    deferred_derivatives,
    deferred_outputs,
    known_inputs,
    make,
    plan,
    splices,
    step_panels,
)
from plan_programs import (
    COPIED,
    EARLY,
    EARLY_FREED,
    EARLY_LOOP_BETWEEN_STEPS,
    EARLY_LOOP_OF_STEPS,
    EARLY_WHOLE,
    LATE,
    LATE_COPIED_LATER,
    OUTPUTS,
    OUTPUTS_IN_LOOP,
    OUTPUTS_READ_EARLY,
    PANELS,
    PANELS_IN_LOOP,
    ROWS,
    SUMMED,
)
from stated_capabilities import Stated

SPLICED = test_splices.NNET, COPIED
SUM = test_splices.NNET, SUMMED
FIRST = test_splices.NNET, EARLY
LAST = test_splices.NNET, LATE
PROJECTED = test_splices.NNET, OUTPUTS


@attrs.frozen
class Rule:
    """A rule, and a program that needs it.

    Attributes:
        maker: The module with the rule.
        old: The rule in the source.
        new: The source without the rule.
        base: A network, and a program to change.
        edits: Lines of the program and their replacements, for which the rule forbids the plan.
    """

    maker: types.ModuleType
    old: str
    new: str
    base: tuple[Nnet, str]
    edits: dict[str, str] = attrs.field(factory=dict)

    @property
    def text(self) -> str:
        """The program."""
        text = self.base[1]
        for old, new in self.edits.items():
            assert old in text
            text = text.replace(old, new)
        return "\n".join(line for line in text.splitlines() if line.strip())


def without(maker: types.ModuleType, old: str, new: str) -> types.ModuleType:
    """A module with changed source, and without assertions."""
    source = inspect.getsource(maker)
    assert source.count(old) == 1, f"{old} is {source.count(old)} times in {maker.__name__}"
    changed = types.ModuleType(maker.__name__)
    changed.__package__ = maker.__package__
    exec(compile(source.replace(old, new), maker.__name__, "exec", optimize=1), changed.__dict__)  # noqa: S102 - our own source
    return changed


def plan_of(nnet: Nnet, text: str) -> Plan:
    """The plan for a program on a machine where everything pays."""
    affine = [n for n, each in enumerate(nnet.components) if "Affine" in each.type]
    every = range(len(nnet.components))
    everything = Stated(split=affine, taps=affine, deferring=every, panels=True)
    return make.plan_with(nnet, program(nnet, text), everything)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (known_inputs, deferred_outputs):
        monkeypatch.setattr(module, "FEWEST_STEPS", 1)
    monkeypatch.setattr(deferred_outputs, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(deferred_outputs, "MOST_ROWS", ROWS)
    monkeypatch.setattr(step_panels, "FEWEST_PARAMETERS", 1)
    monkeypatch.setattr(step_panels, "FEWEST_STEPS", 2)


@pytest.mark.parametrize("base", [SPLICED, SUM, FIRST, LAST, PROJECTED])
def test_programs_are_changed(base: tuple[Nnet, str]) -> None:
    """The unchanged programs have plans that pass the check."""
    nnet, text = base
    found = plan_of(nnet, text)

    assert any((found.early, found.late, found.outputs, found.inputs, found.derivatives))
    check_plan(nnet, program(nnet, text), found)


FIRST_COPY, THIRD_COPY = "m2(:, 0:7) = m1(0:3, :)", "m2(:, 0:7) = m1(8:11, :)"
STEP, FREE = "m3 = wide.propagate(m2)", "free m2\n"
PUT_OFF, SECOND_PUT_OFF = "m1(0:3, :) = m2(:, 0:7)", "m1(4:7, :) = m2(:, 0:7)"
STEP_BACK, SECOND_BACK = (f"m2 = wide.backprop_no_update(m3({n}, :))" for n in ("0:3", "4:7"))
LAST_BACK = "m2 = wide.backprop_no_update(m3(12:15, :))"
SECOND_BLOCK, THIRD_BLOCK = "m2(:, 4:7) = m1(2:61, :)", "m2(:, 8:11) = m1(4:63, :)"
FIRST_SUM, SECOND_SUM = "m3(0:59, :) = m2(:, 0:3)", "m3(2:61, :) += m2(:, 4:7)"
THIRD_SUM = "m3(4:63, :) += m2(:, 8:11)"

RULES = {
    # ---- known_inputs ----
    "only an affine map is made before": Rule(
        known_inputs,
        "isinstance(command, c.Propagate) and can_split(command.component)",
        "isinstance(command, c.Propagate)",
        FIRST,
        {STEP: "m3 = squashed.propagate(m2)"},
    ),
    "the source is not rewritten before the step": Rule(
        known_inputs,
        "if trace.is_rewritten(source.matrix, copied_at, position):",
        "if False:",
        FIRST,
        {FIRST_COPY: f"{FIRST_COPY}\nm1 = constant 0.5"},
    ),
    "the source is not rewritten between steps": Rule(
        known_inputs,
        "return not trace.is_rewritten(matrix, before - 1, step.position)",
        "return True",
        FIRST,
        {THIRD_COPY: f"m1 = constant 0.5\n{THIRD_COPY}"},
    ),
    "the source is not freed before the first step": Rule(
        known_inputs,
        "if chunk or not step.is_freed:",
        "if True:",
        (FIRST[0], EARLY_FREED),
    ),
    "the copy has the factor 1": Rule(
        known_inputs,
        "not isinstance(command, c.MatrixCopy) or command.alpha != 1.0",
        "not isinstance(command, c.MatrixCopy)",
        FIRST,
        {THIRD_COPY: "m2(:, 0:7) = 0.5 * m1(8:11, :)"},
    ),
    "what was written last is a copy": Rule(
        known_inputs,
        "not isinstance(command, c.MatrixCopy) or command.alpha != 1.0",
        "not isinstance(command, c.MatrixCopy | c.MatrixAdd) or command.alpha != 1.0",
        FIRST,
        {THIRD_COPY: f"{THIRD_COPY}\nm2(:, 0:7) += m1(8:11, :)"},
    ),
    "the copy begins with the first column": Rule(
        known_inputs,
        "copied.column == area.column and copied.column_end",
        "copied.column_end",
        FIRST,
        {"m2 = 4 x 12": "m2 = 4 x 14", STEP: "m3 = wide.propagate(m2(:, 2:13))"},
    ),
    "the copy is not of all columns": Rule(
        known_inputs,
        "copied.column == area.column and copied.column_end < area.column_end",
        "copied.column == area.column",
        (FIRST[0], EARLY_WHOLE),
    ),
    "the copy is of all rows": Rule(
        known_inputs,
        "if not is_prefix or (copied.row, copied.row_end) != (area.row, area.row_end):",
        "if not is_prefix:",
        FIRST,
        {THIRD_COPY: f"{THIRD_COPY}\nm2(1:2, 0:7) = m1(9:10, :)"},
    ),
    "no part of the copy is changed": Rule(
        known_inputs,
        "if any(other.overlaps(copied) for other in later):",
        "if False:",
        FIRST,
        {THIRD_COPY: f"{THIRD_COPY}\nm2(:, 5:5) = constant 0.5"},
    ),
    "copy and step are in one round": Rule(
        known_inputs,
        "return (use.position, source) if trace.is_one_round(use.position, before) else None",
        "return use.position, source",
        (FIRST[0], EARLY_LOOP_OF_STEPS),
    ),
    "steps are in one round": Rule(
        known_inputs,
        "if not trace.is_one_round(before, step.position):",
        "if False:",
        (FIRST[0], EARLY_LOOP_BETWEEN_STEPS),
    ),
    "steps read the same columns": Rule(
        known_inputs,
        "(area.column, area.column_end) != (last.column, last.column_end)",
        "False",
        FIRST,
        {"m1 = 16 x 8": "m1 = 16 x 12", THIRD_COPY: "m2(:, 0:7) = m1(8:11, 4:11)"}
        | {f"m1({rows}, :)": f"m1({rows}, 0:7)" for rows in ("0:3", "4:7", "12:15")},
    ),
    # ---- deferred_derivatives ----
    "only an affine map is put off": Rule(
        deferred_derivatives,
        "            and can_split(command.component)\n",
        "",
        LAST,
        {"wide.": "squashed."},
    ),
    "the copy that is kept has the factor 1": Rule(
        deferred_derivatives,
        "if isinstance(command, c.MatrixCopy) and command.alpha == 1.0:",
        "if isinstance(command, c.MatrixCopy):",
        LAST,
        {SECOND_BACK: f"m6(4:7, :) = 0.5 * m3(4:7, :)\n{SECOND_BACK}"}
        | {STEP_BACK: f"m6(0:3, :) = m3(0:3, :)\n{STEP_BACK}"},
    ),
    "the derivative is a whole matrix": Rule(
        deferred_derivatives,
        "if area != trace.areas.whole(matrix) or area.rows > MOST_ROWS:",
        "if area.rows > MOST_ROWS:",
        LAST,
        {"m2 = 4 x 12": "m2 = 4 x 14", "m2 = wide": "m2(:, 2:13) = wide"}
        | {"m2(:, 8:11)": "m2(:, 10:13)"},
    ),
    "the derivative is zeroed": Rule(
        deferred_derivatives,
        "if not trace.is_zeroed(matrix, position):",
        "if False:",
        LAST,
        {"m2 = zeros": "m2 = undefined\nm2 = constant 1.0"},
    ),
    "the first columns are copied once": Rule(
        deferred_derivatives,
        "copy is not None or not isinstance(command, c.MatrixCopy)",
        "not isinstance(command, c.MatrixCopy)",
        LAST,
        {each: f"{each}\nm5 = m2(:, 0:7)" for each in (PUT_OFF, SECOND_PUT_OFF)},
    ),
    "the first columns are copied": Rule(
        deferred_derivatives,
        "copy is not None or not isinstance(command, c.MatrixCopy)",
        "copy is not None or not isinstance(command, c.MatrixCopy | c.MatrixAdd)",
        LAST,
        {SECOND_PUT_OFF: "m1(4:7, :) += m2(:, 0:7)"},
    ),
    "the first columns are copied with the factor 1": Rule(
        deferred_derivatives,
        "if command.alpha != 1.0 or area.rows != whole.rows:",
        "if area.rows != whole.rows:",
        LAST,
        {SECOND_PUT_OFF: "m1(4:7, :) = 0.5 * m2(:, 0:7)"},
    ),
    "all rows are copied": Rule(
        deferred_derivatives,
        "if command.alpha != 1.0 or area.rows != whole.rows:",
        "if command.alpha != 1.0:",
        LAST,
        {SECOND_PUT_OFF: "m1(4:6, :) = m2(0:2, 0:7)"},
    ),
    "not all columns are put off": Rule(
        deferred_derivatives,
        "split < whole.column_end and all(",
        "all(",
        LAST,
        {"m1 = 16 x 8": "m1 = 16 x 12", "m2(:, 0:7)": "m2"}
        | {f"m3({rows}, :) += m2(:, 8:11)\n": "\n" for rows in ("4:7", "8:11", "12:15")},
    ),
    "other uses are of other columns": Rule(
        deferred_derivatives,
        "split < whole.column_end and all(area.column >= split for area in rest)",
        "split < whole.column_end",
        LAST,
        {"m2(:, 8:11)": "m2(:, 7:10)"},
    ),
    "what was copied is what the step reads": Rule(
        deferred_derivatives,
        "if trace.is_touched(derivative, kept_at, position, changes_only=True):",
        "if False:",
        LAST,
        {
            STEP_BACK: f"m6(0:3, :) = m3(0:3, :)\nm3(0:3, :) = constant 0.5\n{STEP_BACK}",
            SECOND_BACK: f"m6(4:7, :) = m3(4:7, :)\n{SECOND_BACK}",
        },
    ),
    "rows that are kept follow one another": Rule(
        deferred_derivatives,
        "if (last.row_end, last.column) != (area.row, area.column):",
        "if last.column != area.column:",
        LAST,
        {STEP_BACK: "m2 = wide.backprop_no_update(m3(8:11, :))"},
    ),
    "columns that are kept are the same": Rule(
        deferred_derivatives,
        "if (last.row_end, last.column) != (area.row, area.column):",
        "if last.row_end != area.row:",
        LAST,
        {"m3 = 16 x 4": "m3 = 16 x 8", SECOND_BACK: "m2 = wide.backprop_no_update(m3(4:7, 4:7))"}
        | {f"m3({rows}, :)": f"m3({rows}, 0:3)" for rows in ("0:3", "4:7", "8:11", "12:15")},
    ),
    "nothing touches the target of the last step before the copy": Rule(
        deferred_derivatives,
        "if trace.is_touched(step.target, step.position, step.copied, changes_only=False):",
        "if False:",
        LAST,
        {LAST_BACK: f"{LAST_BACK}\nm1(12:12, :) = constant 0.5"},
    ),
    "nothing touches a target before the product": Rule(
        deferred_derivatives,
        "trace.is_touched(old.target, old.copied, step.position, changes_only=False)",
        "False",
        LAST,
        {PUT_OFF: f"{PUT_OFF}\nm5(:, 0:3) = squashed.propagate(m1(0:3, 0:3))"},
    ),
    "nothing touches a target after the product and before the copy": Rule(
        deferred_derivatives,
        "or trace.is_touched(old.target, step.position, old.copied, changes_only=False)",
        "",
        (LAST[0], LATE_COPIED_LATER),
    ),
    "what is kept stays until the product": Rule(
        deferred_derivatives,
        "or trace.is_touched(old.kept, old.kept_at, step.position, changes_only=True)",
        "",
        LAST,
        {PUT_OFF: f"{PUT_OFF}\nm3(0:3, :) = constant 0.5"},
    ),
    # ---- deferred_outputs ----
    "only outputs of affine maps are put off": Rule(
        deferred_outputs,
        "            and can.can_split(command.component)\n",
        "",
        PROJECTED,
        {"below.": "squashed."},
    ),
    "a step has no other change": Rule(
        deferred_outputs,
        "            and position not in changed\n",
        "",
        FIRST,
        {"m2(:, 8:11) = m3": "m2(:, 8:9) = m3(:, 0:1)"},
    ),
    "a step is put off once": Rule(deferred_outputs, "number < done or ", "", PROJECTED),
    "not all columns of an output are put off": Rule(
        deferred_outputs,
        "not split or ",
        "",
        PROJECTED,
        {
            f"m1({rows}, 2:3) = m2({before}, 0:1)\n": "\n"
            for before, rows in itertools.pairwise(("0:3", "4:7", "8:11", "12:15"))
        },
    ),
    "no command touches columns that are put off": Rule(
        deferred_outputs,
        "position >= due or ",
        "",
        PROJECTED,
        {"m1(8:11, 2:3)": "m3(0:3, :) = squashed.propagate(m2(0:3, :))\nm1(8:11, 2:3)"},
    ),
    "steps are in one round or segment": Rule(
        deferred_outputs,
        "barrier = self._barriers[bisect.bisect_right(self._barriers, position)]",
        "barrier = len(self.trace.commands)",
        (PROJECTED[0], OUTPUTS_IN_LOOP),
    ),
    "no early product reads columns that are put off": Rule(
        deferred_outputs,
        "next(uses, barrier), *reads)",
        "next(uses, barrier))",
        (PROJECTED[0], OUTPUTS_READ_EARLY),
    ),
    # ---- splices: inputs ----
    "inputs in loops are left alone": Rule(
        splices,
        "if trace.label is not None:\n        return (), ()",
        "",
        SPLICED,
        {
            STEP: "label\nm3 = wide.propagate(m2)",
            FREE: "\n",
            "provide output = m3": "provide output = m3\nm1 = constant 0.5\ngoto c6",
        },
    ),
    "nothing changes where an input was copied from": Rule(
        splices,
        "if trace.is_touched(origin, at, position, changes_only=True):",
        "if False:",
        SPLICED,
        {THIRD_BLOCK: f"{THIRD_BLOCK}\nm1 = constant 0.5"},
    ),
    "a block is copied with the factor 1": Rule(
        splices,
        "is_copy = isinstance(command, c.MatrixCopy) and command.alpha == 1.0",
        "is_copy = isinstance(command, c.MatrixCopy)",
        SPLICED,
        {SECOND_BLOCK: "m2(:, 4:7) = 0.5 * m1(2:61, :)"},
    ),
    "a block is a copy": Rule(
        splices,
        "is_copy = isinstance(command, c.MatrixCopy) and command.alpha == 1.0",
        "is_copy = isinstance(command, c.MatrixCopy | c.MatrixAdd) and command.alpha == 1.0",
        SPLICED,
        {SECOND_BLOCK: f"{SECOND_BLOCK}\nm2(:, 4:7) += m1(2:61, :)"},
    ),
    "a block is one copy": Rule(
        splices,
        "if not (is_copy and use.area.contains(block)):",
        "if not is_copy:",
        SPLICED,
        {SECOND_BLOCK: "m2(:, 4:7) = m1(0:59, :)\nm2(5:9, 4:7) = m1(7:11, :)"},
    ),
    "blocks are at equal distances": Rule(
        plan,
        "if block != (matrix, expected):",
        "if False:",
        SPLICED,
        {SECOND_BLOCK: "m2(:, 4:7) = m1(3:62, :)"},
    ),
    "blocks are further down": Rule(
        plan,
        "if distance <= 0:",
        "if False:",
        SPLICED,
        {"m1(0:59, :)": "m1(4:63 , :)", "m1(4:63, :)": "m1(0:59, :)", "63 ,": "63,"},
    ),
    "a copy that others read is made": Rule(
        splices,
        "if use.area.overlaps(area) and copy not in copies.get(use.position, ()):",
        "if False:",
        SPLICED,
        {FREE: f"m3 = squashed.propagate(m2(:, 4:7))\n{FREE}"},
    ),
    "an idle matrix holds nothing": Rule(
        splices,
        "if all(_is_needless_use(trace, matrix, use, inputs, left_out) for use in uses):",
        "if True:",
        (SPLICED[0], test_splices.IN_TURN),
    ),
    "nothing but copies that are left out writes to an idle matrix": Rule(
        splices,
        "return use.position in left_out or is_end(trace.commands[use.position])",
        "return True",
        SPLICED,
        {"m3 = 60 x 4": "m3 = 60 x 4\nm4 = 60 x 12", FREE: "m4 = take m2\n"}
        | {"provide": "m3 = squashed.propagate(m4(:, 4:7))\nprovide"},
    ),
    "nothing but affine maps that read elsewhere reads an idle matrix": Rule(
        splices,
        "return inputs.get(use.position) == (matrix, use.area)",
        "return True",
        SPLICED,
        {"m2 = 60 x 12": "m2 = 60 x 16", "m2 = undefined": "m2 = zeros"}
        | {STEP: "m3 = wide.propagate(m2(:, 0:11))\nm3 = squashed.propagate(m2(:, 12:15))"},
    ),
    # ---- splices: derivatives ----
    "derivatives in loops are left alone": Rule(
        splices,
        "if trace.label is not None:\n        return\n",
        "pass\n",
        SUM,
        {
            "m2 = wide": "label\nm2 = wide",
            FREE: "\n",
            "provide input = m3": "provide input = m3\ngoto c4",
        },
    ),
    "a sum begins with zero": Rule(
        splices,
        " or not trace.is_zeroed(matrix, position):",
        ":",
        SUM,
        {"m2 = zeros": "m2 = undefined\nm2 = constant 1.0"},
    ),
    "only the first block replaces": Rule(
        splices,
        "replaces = isinstance(command, c.MatrixCopy) and bool(added)",
        "replaces = False",
        SUM,
        {SECOND_SUM: "m3(2:61, :) = m2(:, 4:7)"},
    ),
    "blocks are added with the factor 1": Rule(
        splices,
        "if replaces or command.alpha != 1.0:",
        "if replaces:",
        SUM,
        {SECOND_SUM: "m3(2:61, :) += 0.5 * m2(:, 4:7)"},
    ),
    "blocks are added in order": Rule(
        splices,
        "sources != _blocks_of(area, width) or ",
        "",
        SUM,
        {"m2(:, 4:7)": "m2(:, 8:11 )", "m2(:, 8:11)": "m2(:, 4:7)", "11 )": "11)"},
    ),
    "the sum has room in the memory of the derivative": Rule(
        splices,
        " or taps.distance > taps.rows:",
        ":",
        SUM,
        {"64 x 4": "182 x 4", "m3(2:61, :)": "m3(61:120, :)", "m3(4:63, :)": "m3(122:181, :)"},
    ),
    "nothing touches what is added to in between": Rule(
        splices,
        "if any(use.area.overlaps(taps.area) for use in others if use.position not in added):",
        "if False:",
        SUM,
        {FIRST_SUM: f"{FIRST_SUM}\nm3(10:10, :) = constant 0.5"},
    ),
    # ---- make ----
    "input and derivative have the same taps": Rule(
        make,
        "return offsets.get(position, derivative_offsets) == derivative_offsets",
        "return True",
        (SPLICED[0], test_splices.BACKWARD),
        {"m6(2:61, :)": "m6(1:60, :)", "m6(4:63, :)": "m6(2:61, :)"},
    ),
    # ---- step_panels ----
    "only the parameters of affine maps are in panels": Rule(
        step_panels,
        "can.can_split(command.component) and ",
        "",
        (SPLICED[0], PANELS),
        {"wide.propagate(m1)": "squashed.propagate(m1(:, 0:3))"},
    ),
    "panels lack the columns that are computed elsewhere": Rule(
        step_panels, "skipped.get(position, 0)", "0", FIRST
    ),
    "memory for panels is as large as the largest": Rule(
        step_panels,
        "sorted(positions, key=size, reverse=True)",
        "sorted(positions, key=size)",
        (SPLICED[0], PANELS),
    ),
    "memory for panels is not in use": Rule(
        step_panels,
        "next((one for one in memories if one.is_free(*use)), None)",
        "next(iter(memories), None)",
        (SPLICED[0], PANELS),
        {"m2 = undefined": "m2 = undefined\nm2 = below.propagate(m1(:, 0:3))"},
    ),
    "steps with outputs put off have no panels": Rule(
        step_panels,
        "if position in put_off:",
        "if False:",
        PROJECTED,
    ),
    "loops have no panels": Rule(
        step_panels,
        "if trace.label is not None:",
        "if False:",
        (SPLICED[0], PANELS_IN_LOOP),
    ),
}


PAYS = {
    known_inputs: (
        "place.area.rows > MOST_ROWS",
        "not is_beside",
        "chunk and (rows >= rows_at_once or not _continues(trace, chunk, step))",
        "len(chunk) >= FEWEST_STEPS",
    ),
    deferred_derivatives: (
        "area.rows > MOST_ROWS",
        "chunk and (rows >= ROWS_AT_ONCE or not _continues(trace, chunk, step))",
        "len(chunk) >= FEWEST_STEPS",
    ),
    deferred_outputs: (
        "can.gains_by_deferring(command.component)",
        "trace.areas.of(command.output).area.rows <= MOST_ROWS",
        "size < FEWEST_PARAMETERS",
        "len(steps) >= FEWEST_STEPS",
        "row >= ROWS_AT_ONCE",
    ),
    splices: (
        "area.rows < FEWEST_ROWS:",
        "area.rows < FEWEST_ROWS or",
        "gains(command.component, found[0].rows, found[0].offsets)",
        "gains(command.component, taps.rows, taps.offsets)",
    ),
    step_panels: (
        "len(at) < FEWEST_STEPS or size(factor) < FEWEST_PARAMETERS",
        "can.gains_by_panels(command.component, rows)",
    ),
    make: (),
}
"""Conditions that only decide what is faster: without them, a plan is still right."""

WALKS = {
    known_inputs: (
        "if found is None",
        "if not use.area.overlaps(attrs.evolve(area, column_end=area.column + 1))",
        "if step is not None",
    ),
    deferred_derivatives: (
        "isinstance(command, c.BackpropNoModelUpdate)\n            and command.input_deriv",
        "if step is not None",
        "if copy is None",
        "if isinstance(command, c.DeallocMatrix)",
        "if area.column > 0",
        "return copy if is_apart else None",
    ),
    deferred_outputs: ("            isinstance(command, c.Propagate)\n",),
    splices: (
        "if not isinstance(command, c.Backprop | c.BackpropNoModelUpdate)",
        "if command.input_deriv",
        "if derivative is not None",
        "if not isinstance(command, c.Propagate | c.Backprop)",
        "if submatrix else None",
        "if found is not None",
        "if copy is None",
        "if len(origins) > 1 else None",
        "return None if taps is None",
        "if is_copy and use.changes and use.area.overlaps(area)",
        "if use.changes and use.area.overlaps(block)",
        "if is_end(trace.commands[use.position]):",
        "if isinstance(command, c.DeallocMatrix)",
        "if not isinstance(command, c.MatrixCopy | c.MatrixAdd)",
        "if sources else",
        "if len(sources) > 1 else None",
        "if taps is None or",
        "if use.changes:",
        "if isinstance(command, c.Propagate) else command.input_value",
        "if area.columns % width",
    ),
    step_panels: (
        "if memory is None",
        "if isinstance(command, c.Propagate)",
        "elif isinstance(command, c.BackpropNoModelUpdate)",
    ),
    make: (),
}
"""Conditions by which a maker goes through the commands: without them it fails, or finds nothing to
plan. The conditions of `_is_whole` are needed where it is called."""


def _conditions(maker: types.ModuleType) -> list[tuple[int, int]]:
    """The start and the end of each condition in the source of a module."""
    source = inspect.getsource(maker)
    starts = [0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    found = []
    for node in ast.walk(ast.parse(source)):
        condition: ast.expr | None = None
        if isinstance(node, ast.If | ast.IfExp):
            condition = node.test
        elif isinstance(node, ast.Return) and isinstance(
            node.value, ast.BoolOp | ast.Compare | ast.UnaryOp
        ):
            condition = node.value
        parts = condition.values if isinstance(condition, ast.BoolOp) else [condition]
        for part in parts:
            if part is not None:
                assert part.end_lineno is not None
                assert part.end_col_offset is not None
                begin = starts[part.lineno - 1] + part.col_offset
                found.append((begin, starts[part.end_lineno - 1] + part.end_col_offset))
    return found


@pytest.mark.parametrize("maker", PAYS, ids=lambda maker: maker.__name__.rpartition(".")[2])
def test_every_condition_is_a_rule(maker: types.ModuleType) -> None:
    """Each condition in a maker is a rule with a test, or is listed as something else."""
    source = inspect.getsource(maker)
    known = [rule.old for rule in RULES.values() if rule.maker is maker]
    places = []
    for text in (*known, *PAYS[maker], *WALKS[maker]):
        assert source.count(text) == 1, f"{text} is {source.count(text)} times in {maker.__name__}"
        begin = source.index(text)
        places.append((begin, begin + len(text)))
    missing = [
        source[begin:end]
        for begin, end in _conditions(maker)
        if not any(first < end and begin < last for first, last in places)
    ]

    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_taken_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule the plan passes the check, without it the check refuses the plan."""
    rule = RULES[name]
    nnet, _ = rule.base
    computation = program(nnet, rule.text)
    check_plan(nnet, computation, plan_of(nnet, rule.text))

    changed = without(rule.maker, rule.old, rule.new)
    for known, value in vars(make).items():
        if inspect.isfunction(value) and value.__module__ == rule.maker.__name__:
            monkeypatch.setattr(make, known, getattr(changed, known))
    if rule.maker is plan:
        monkeypatch.setattr(splices, "Taps", changed.Taps)
    if rule.maker is make:
        monkeypatch.setattr(make, "plan_with", changed.plan_with)
    for known in ("MOST_ROWS", "FEWEST_ROWS", "FEWEST_STEPS", "FEWEST_PARAMETERS"):
        if hasattr(changed, known):
            monkeypatch.setattr(changed, known, getattr(rule.maker, known))
    found = plan_of(nnet, rule.text)

    with pytest.raises(PlanError):
        check_plan(nnet, computation, found)
