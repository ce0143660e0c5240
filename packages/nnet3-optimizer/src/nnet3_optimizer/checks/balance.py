"""Components run backward over the rows of their forward pass, and store statistics once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from nnet3_computation.arrays import Bools, Ids
from nnet3_computation.checks import Subject
from nnet3_computation.commands import (
    Backprop,
    BackpropNoModelUpdate,
    Command,
    Propagate,
    StoreStats,
)
from nnet3_descriptors.components import ComponentProperties as Property

Counts = npt.NDArray[np.int64]


def check_balance(subject: Subject) -> None:
    """Checks for each component the number of output rows over which it runs in all.

    Forward means before the marker.

    1. Backward for input derivatives, and backward for updates, over no more rows than forward.
    2. If any component stores statistics, then every component that has statistics stores them,
       over as many rows as it runs forward.
    3. Precomputed indexes belong to one component, and serve one Propagate in the forward part.

    The check skips computations of several segments: nothing runs backward in them.
    """
    if len(subject.segment_ends) != 1:
        return
    at = subject.positions(Propagate)
    at = at[at < subject.segment_ends[0]]
    forward = _count(subject, at, Propagate, "output")
    _check_precomputed(subject, at)
    _check_backward(subject, forward)
    _check_statistics(subject, forward)


def _count(subject: Subject, at: Ids, command_type: type[Command], output: str) -> Counts:
    """Returns for each component the rows of the output over all these commands."""
    component = subject.operand(at, command_type, "component")
    rows = subject.rows(subject.operand(at, command_type, output))
    count = len(subject.nnet.components)
    return np.bincount(component, weights=rows, minlength=count).astype(np.int64)


def _check_backward(subject: Subject, forward: Counts) -> None:
    at = subject.positions(Backprop, BackpropNoModelUpdate)
    if not len(at):
        return
    component = subject.operand(at, Backprop, "component")
    is_updatable = (subject.analysis.component_properties[component] & int(Property.UPDATABLE)) != 0
    updates: Bools = (subject.opcodes[at] == Backprop.OPCODE) & is_updatable
    for chosen, what in (
        (at[subject.operand(at, Backprop, "input_deriv") != 0], "for derivatives of its input"),
        (at[updates], "for its update"),
    ):
        backward = _count(subject, chosen, Backprop, "output_deriv")
        _require(
            subject,
            backward <= forward,
            chosen,
            lambda c, b=backward, w=what: (  # type: ignore[misc]
                f"runs backward over {b[c]} rows in all {w}, but forward over {forward[c]}"
            ),
        )


def _check_statistics(subject: Subject, forward: Counts) -> None:
    at = subject.positions(StoreStats)
    if not len(at):
        return
    stored = _count(subject, at, StoreStats, "output")
    properties = subject.analysis.component_properties
    stores = (properties & int(Property.STORES_STATS)) != 0
    _require(
        subject,
        (stored == forward) | ~stores,
        np.concatenate([at, subject.positions(Propagate)]),
        lambda c: f"stores statistics of {stored[c]} rows in all, but runs over {forward[c]}",
    )


def _check_precomputed(subject: Subject, propagates: Ids) -> None:
    number = subject.operand(propagates, Propagate, "precomputed_indexes")
    count = len(subject.computation.precomputed_indexes)
    owner = np.full(count, -1, dtype=np.int64)
    owner[number] = subject.operand(propagates, Propagate, "component")
    uses = np.bincount(number, minlength=count)
    subject.require(
        (uses[number] == 1) | (number == 0),
        propagates,
        lambda i: f"precomputed_indexes = {number[i]} serve {uses[number[i]]} Propagate commands",
    )
    at = subject.positions(Backprop, BackpropNoModelUpdate)
    number = subject.operand(at, Backprop, "precomputed_indexes")
    component = subject.operand(at, Backprop, "component")

    def message(i: int) -> str:
        made = owner[number[i]]
        of = f"component '{subject.component(int(made))[0]}'" if made >= 0 else "no component"
        return f"precomputed_indexes = {number[i]} served {of} in the forward part"

    subject.require((number == 0) | (owner[number] == component), at, message)


def _require(subject: Subject, valid: Bools, commands: Ids, message: Callable[[int], str]) -> None:
    """Fails for the first component that is not valid, at the last of its commands."""
    if valid.all():
        return
    wrong = int(np.flatnonzero(~valid)[0])
    of_component = commands[subject.operand(commands, Propagate, "component") == wrong]
    name, component = subject.component(wrong)
    subject.fail(f"component '{name}' ({component.type}) {message(wrong)}", int(of_component[-1]))
