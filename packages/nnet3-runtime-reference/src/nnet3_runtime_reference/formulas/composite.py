"""A sequence of components as one component."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import ComponentProperties
from nnet3_descriptors.components import CompositeComponent

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula, formula_of


@attrs.frozen(eq=False)
class _Run:
    """The results of the backward pass of some rows.

    Attributes:
        dx: The derivative at the input.
        gradient: The gradients of all parts.
        statistics: Fields of all parts that change, with their new values.
    """

    dx: Array
    gradient: dict[str, Array]
    statistics: dict[str, Any]


@formula(CompositeComponent)
class Composite(Formula):
    """y = f_n(... f_2(f_1(x))), of max_rows_process rows at a time.

    The backward pass computes the values between the parts again, stores the statistics of parts
    that have some, and runs each part backward, from the last part to the first. A field of part i
    has the name "i.field".
    """

    def forward(self, call: Call) -> Array:
        """Returns the value after the last part."""
        return np.concatenate([_forward(piece)[-1].y for piece in _pieces(call)])

    def decide(self, call: Call) -> list[_Run]:
        """Returns the backward pass of each piece; the parts make their decisions in it."""
        return _backward(call)

    def backward(self, call: Call) -> Array:
        """Returns the derivative before the first part."""
        runs = call.decision if call.updates else _backward(call)
        return np.concatenate([run.dx for run in runs])

    def gradient(self, call: Call) -> dict[str, Array]:
        """Returns the sums over the pieces of the gradients of the parts."""
        first, *others = (run.gradient for run in call.decision)
        return {name: sum((run[name] for run in others), first[name]) for name in first}

    def backward_statistics(self, call: Call) -> dict[str, Any]:
        """Returns the statistics that the parts store, in StoreStats and backward."""
        changed: dict[str, Any] = {}
        for run in call.decision:
            changed |= run.statistics
        return changed


def _pieces(call: Call) -> Iterator[Call]:
    """Yields the call for max_rows_process rows at a time; the last piece may have fewer."""
    step = call.component.max_rows_process
    step = step if step > 0 else call.rows_in
    for begin in range(0, call.rows_in, step):
        rows = slice(begin, begin + step)
        x, y, dy = call.x[rows], call.y[rows], call.dy[rows]
        yield attrs.evolve(call, x=x, y=y, dy=dy, rows_in=len(x), rows_out=len(x))


def _forward(call: Call) -> list[Call]:
    """Returns the calls of the parts, each with its input, its memo and its output."""
    calls: list[Call] = []
    x = call.x
    for number, part in enumerate(call.component.components):
        f, name = formula_of(part), f"{call.name}.{number}"
        statistics = _of_part(call.statistics, number)
        this = attrs.evolve(
            call, component=part, statistics=statistics, name=name, x=x, memo=None, decision=None
        )
        this = attrs.evolve(this, memo=f.memo(this))
        this = attrs.evolve(this, y=f.forward(this))
        calls.append(this)
        x = this.y
    return calls


def _of_part(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    prefix = f"{number}."
    return {
        name.removeprefix(prefix): value
        for name, value in fields.items()
        if name.startswith(prefix)
    }


def _backward(call: Call) -> list[_Run]:
    """Runs all pieces backward; each piece sees the statistics of the piece before."""
    runs = []
    changed: dict[str, Any] = {}
    for piece in _pieces(call):
        runs.append(_backward_of_piece(piece.with_statistics(changed)))
        changed |= runs[-1].statistics
    return runs


def _backward_of_piece(call: Call) -> _Run:
    dx = call.dy
    gradient: dict[str, Array] = {}
    statistics: dict[str, Any] = {}
    for number, this in reversed(list(enumerate(_forward(call)))):
        f, this = formula_of(this.component), attrs.evolve(this, dy=dx)
        changed: dict[str, Any] = {}
        if call.updates and this.has(ComponentProperties.STORES_STATS):
            changed |= f.statistics(this)
            this = this.with_statistics(changed)
        if call.updates:
            this = attrs.evolve(this, decision=f.decide(this))
        dx = f.backward(this)
        if call.updates:
            changed |= f.backward_statistics(this)
        statistics |= {f"{number}.{name}": value for name, value in changed.items()}
        of_part = f.gradient(this) if this.has(ComponentProperties.UPDATABLE) else {}
        gradient |= {f"{number}.{name}": array for name, array in of_part.items()}
    return _Run(dx, gradient, statistics)
