"""Loops come round segment by segment, so that a run of one segment ends."""

from __future__ import annotations

import numpy as np

from nnet3_computation.checks.subject import Subject
from nnet3_computation.commands import GotoLabel


def check_rounds(subject: Subject) -> None:
    """Checks where a loop goes back, and that it ends segments on its way.

    1. There is at most one GotoLabel, and it is the last command.
    2. Its label comes before it and begins a segment: it is the first command, or comes just after
       a NoOperationMarker.
    3. A NoOperationMarker comes between them; without one a round would never stop.
    """
    gotos = subject.positions(GotoLabel)
    if not len(gotos):
        return
    if len(gotos) > 1 or gotos[0] != len(subject.table) - 1:
        subject.fail("GotoLabel: expected as the last command only", int(gotos[0]))
    goto = int(gotos[0])
    label = int(subject.operand(gotos, GotoLabel, "label")[0])
    ends = subject.segment_ends
    if label and not np.isin(label - 1, ends):
        subject.fail(f"GotoLabel: the label c{label} does not begin a segment", goto)
    if not (ends > label).any():
        subject.fail(f"GotoLabel: no segment ends between the label c{label} and this", goto)
