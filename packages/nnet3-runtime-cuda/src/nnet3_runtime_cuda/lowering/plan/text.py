"""The text form of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nnet3_runtime_cuda.lowering.plan.plan import (
    EarlyProduct,
    GatheredRows,
    LateProduct,
    PanelledFactor,
    Plan,
    Span,
    SplicedDerivative,
    SplicedInput,
)

FEW = 4
"""More commands than this are counted, and only the first and the last are named."""


def format_plan(plan: Plan) -> str:
    """Returns a plan as text, a line for each change, in the order of the commands.

    A line begins with the command at which something is done (c12 is the command at position 12);
    areas are written as in the text form of computations.
    """
    lines = sorted(_lines(plan))
    return "".join(f"{text}\n" for _, text in lines) or "every command as it is\n"


def _lines(plan: Plan) -> Iterator[tuple[int, str]]:
    """The lines, each with the position that it is about."""
    names = plan.components
    for product in plan.early:
        yield product.steps[0].position, _early(product, names)
    for late in plan.late:
        yield late.steps[-1].position, _late(late, names)
    for factor in plan.panels:
        yield factor.positions[0], _panels(factor, plan, names)
    for each in plan.inputs:
        yield each.position, _input(each)
    if plan.left_out:
        yield plan.left_out[0], f"left out: {_commands(plan.left_out)}"
    for derivative in plan.derivatives:
        yield derivative.position, _derivative(derivative)
    for rows in plan.gathered:
        yield rows.moves[-1], _moved(rows, "gather once", "for")
    for rows in plan.scattered:
        yield rows.moves[-1], _moved(rows, "add once", "from")


def _early(product: EarlyProduct, names: tuple[str, ...]) -> str:
    steps = product.steps
    return (
        f"before c{steps[0].position}: {names[product.component]} of {product.source} for columns "
        f"0:{product.columns - 1} of {len(steps)} steps: "
        f"{_spans((step.position, step.rows) for step in steps)}"
    )


def _late(product: LateProduct, names: tuple[str, ...]) -> str:
    steps = product.steps
    return (
        f"after c{steps[-1].position}: derivative of {names[product.component]} from "
        f"{product.kept} for columns 0:{product.columns - 1} of {len(steps)} steps: "
        f"{_spans((step.position, step.rows) for step in steps)}; to "
        f"{steps[0].target} ... {steps[-1].target}; "
        f"left out: {_commands([step.copied for step in steps])}"
    )


def _panels(factor: PanelledFactor, plan: Plan, names: tuple[str, ...]) -> str:
    direction = "backward" if factor.is_backward else "forward"
    skipped = f" without columns 0:{factor.skipped - 1}" if factor.skipped else ""
    return (
        f"before c{factor.positions[0]}: {names[factor.component]}, {direction},{skipped} in "
        f"panels (memory {factor.memory}, {plan.panel_memory[factor.memory]} elements) for "
        f"{_commands(factor.positions)}"
    )


def _input(each: SplicedInput) -> str:
    without = f", without {_commands(each.copies)}" if each.copies else ""
    idle = "; its matrix is idle" if each.is_idle else ""
    return f"c{each.position}: input from {each.taps}{without}{idle}"


def _derivative(each: SplicedDerivative) -> str:
    added = f", added at c{each.added[0]}; left out: {_commands(each.added[1:])}"
    return f"c{each.position}: input derivative summed up in m{each.matrix}, {each.taps}{added}"


def _moved(rows: GatheredRows, what: str, preposition: str) -> str:
    return (
        f"c{rows.moves[-1]}: {what} {rows.taps} {preposition} {_commands(rows.maps)}; left out: "
        f"{_commands(rows.moves[:-1])}"
    )


def _commands(positions: Iterable[int]) -> str:
    """Positions of commands."""
    names = [f"c{position}" for position in positions]
    if len(names) > FEW:
        return f"{names[0]} ... {names[-1]} ({len(names)} commands)"
    return ", ".join(names)


def _spans(steps: Iterable[tuple[int, Span]]) -> str:
    """Positions of commands and rows of a product."""
    names = [f"c{position} rows {first}:{end - 1}" for position, (first, end) in steps]
    if len(names) > FEW:
        return f"{names[0]} ... {names[-1]}"
    return ", ".join(names)
