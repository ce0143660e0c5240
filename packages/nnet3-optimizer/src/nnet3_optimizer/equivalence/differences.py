"""The first difference between two behaviours, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nnet3_optimizer.equivalence.behaviour import Behaviour, Contributions, Provided
from nnet3_optimizer.equivalence.pattern import IrregularError, all_rows
from nnet3_optimizer.equivalence.symbols.keys import rows_of
from nnet3_optimizer.equivalence.symbols.stretches import Stretches
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_SHOWN = 5


def compare_behaviour(
    nnet: Nnet, one: Behaviour, other: Behaviour, sequences: int, *, same_calls: bool = False
) -> None:
    """Raises an EquivalenceError that names the first difference between two behaviours.

    Args:
        nnet: The network.
        one: The behaviour of the first computation.
        other: The behaviour of the second one.
        sequences: The number of sequences for which each row stands.
        same_calls: Whether components have to be updated by the same calls, in order.
    """
    for segment, node in sorted(one.provided.keys() | other.provided.keys()):
        first = one.provided.get((segment, node))
        second = other.provided.get((segment, node))
        name = nnet.node_names[node]
        what = f"what is provided for node '{name}' in segment {segment}"
        if first is None or second is None:
            which = "first" if second is None else "second"
            raise EquivalenceError(f"only the {which} computation has {what}", what=name)
        _compare_provided(first, second, sequences, segment, name)
    for kind, before, after in (
        ("update", one.updates, other.updates),
        ("statistics", one.stats, other.stats),
    ):
        for component in sorted(before.keys() | after.keys()):
            calls = before.get(component, _NOTHING), after.get(component, _NOTHING)
            if calls[0].total != calls[1].total:
                name = nnet.component_names[component]
                message = f"the {kind} of component '{name}' differs"
                raise EquivalenceError(message, what=name, commands=_odd_calls(*calls))
            if same_calls and kind == "update" and calls[0].calls != calls[1].calls:
                name = nnet.component_names[component]
                message = (
                    f"the update of component '{name}' is the same sum, but made by other calls, "
                    f"{len(calls[0].calls)} before and {len(calls[1].calls)} after, or in another "
                    "order"
                )
                raise EquivalenceError(message, what=name, commands=_odd_calls(*calls))


def _compare_provided(
    first: Provided, second: Provided, sequences: int, segment: int, name: str
) -> None:
    if first.block != second.block:
        raise IrregularError  # equal row numbers stand for different rows
    one, other = (list(rows_of(each.content.keys())) for each in (first, second))
    if one == other:
        return
    what = f"what is provided for node '{name}' in segment {segment}"
    if len(one) != len(other):
        counts = len(one) * sequences, len(other) * sequences
        raise EquivalenceError(
            f"{what} has {counts[0]} rows before and {counts[1]} after", what=name
        )
    places = [row for row in range(len(one)) if one[row] != other[row]]
    rows = all_rows(places, first.block, sequences)
    shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
    column = first_column(first.content, second.content, places[0], places[0])
    raise EquivalenceError(
        f"{what} differs in {len(rows)} of {len(one) * sequences} rows: {shown}; "
        f"row {rows[0]} from column {column} on",
        what=name,
        segment=segment,
        row=rows[0],
        column=column,
    )


def first_column(one: Stretches, other: Stretches, row: int, other_row: int) -> int:
    """Returns the first column in which a row of one differs from a row of the other."""
    points = sorted({*one.starts, *other.starts})
    return next(point for point in points if one.at(row, point) != other.at(other_row, point))


_NOTHING = Contributions()


def _odd_calls(one: Contributions, other: Contributions) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the positions of the calls that only one of the computations makes."""
    return _not_in(one, other), _not_in(other, one)


def _not_in(one: Contributions, other: Contributions) -> tuple[int, ...]:
    others, odd = Counter(other.calls), []
    for call, command in zip(one.calls, one.commands, strict=True):
        others[call] -= 1
        if others[call] < 0:
            odd.append(command)
    return tuple(odd)
