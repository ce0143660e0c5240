"""Memos: handed from one Propagate to the commands of the same component that need them."""

from __future__ import annotations

from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_computation.analysis.kinds import memos
from nnet3_computation.arrays.csr import where
from nnet3_computation.checks.subject import Subject
from nnet3_computation.commands import Propagate, StoreStats


def check_memos(subject: Subject) -> None:
    """Checks memos.

    1. A memo is made by one Propagate, of a component that makes memos.
    2. It is used at least once, by commands of that component that come later; by at most one
       Backprop.
    """
    made: dict[int, int] = {}
    used: set[int] = set()
    spent: dict[int, int] = {}
    table = subject.table
    named = memos(table)
    commands = where(named != 0)
    component_of = dict(zip(commands.tolist(), table[commands, 2].tolist(), strict=True))
    uses_memo = (subject.analysis.component_properties & int(Property.USES_MEMO)) != 0
    for at, opcode, memo in zip(
        commands.tolist(), table[commands, 0].tolist(), named[commands].tolist(), strict=True
    ):
        component, kind = component_of[at], subject.name(at)
        if not uses_memo[component]:
            name, _ = subject.component(component)
            subject.fail(f"{kind}: memo = {memo}, but component '{name}' makes no memos", at)
        if opcode == Propagate.OPCODE:
            if memo in made:
                subject.fail(f"{kind}: memo {memo} was already made by c{made[memo]}", at)
            made[memo] = at
            continue
        if memo not in made:
            subject.fail(f"{kind}: memo {memo} is used, but no Propagate made it before", at)
        if component_of[made[memo]] != component:
            subject.fail(f"{kind}: memo {memo} was made by another component, c{made[memo]}", at)
        if opcode != StoreStats.OPCODE:
            if memo in spent:
                subject.fail(f"{kind}: memo {memo} was already used up by c{spent[memo]}", at)
            spent[memo] = at
        used.add(memo)
    for memo, at in made.items():
        if memo not in used:
            subject.fail(f"Propagate: memo {memo} is made, but never used", at)
