"""The checks before a run, and how to run checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from nnet3_descriptors import ComponentNode, InputNode, OutputNode, structure
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_computation import arrays, commands
from nnet3_computation.analysis.accesses import memos
from nnet3_computation.analysis.layout import MATRIX
from nnet3_computation.checks import allocation, operands
from nnet3_computation.checks.subject import COLS, FaultError, Subject
from nnet3_computation.computation import NnetComputation
from nnet3_computation.errors import CheckError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def check_network(subject: Subject) -> None:
    """Checks that the computation was made for this network, if it has a fingerprint.

    The comparison leaves out parameters and names; see `NetworkFingerprint`.
    """
    fingerprint = subject.computation.network
    difference = None if fingerprint is None else fingerprint.difference(subject.nnet)
    if difference is not None:
        subject.fail(f"the computation is of another network: {difference}")


def check_world(subject: Subject) -> None:
    """Checks AcceptInput and ProvideOutput.

    1. The node is one of the network's, and the matrix has its dimension.
    2. Before the marker inputs are accepted and outputs provided, after it the derivatives of
       outputs are accepted and those of inputs provided. A component node may be an input. In a
       computation of several forward segments all of them are like the first.
    3. In one segment no node is accepted twice or provided twice.
    """
    at = subject.positions(commands.AcceptInput, commands.ProvideOutput)
    node = subject.operand(at, commands.AcceptInput, "node")
    nodes = subject.nnet.nodes
    subject.require(
        node < len(nodes),
        at,
        lambda i: f"node = {node[i]} is out of range: the network has {len(nodes)} nodes",
    )
    dims = structure.node_dims(subject.nnet)[node]
    subject.require_size(
        at,
        "matrix",
        subject.operand(at, commands.AcceptInput, "matrix"),
        COLS,
        dims,
        lambda i: f"the dimension of node '{nodes[node[i]].name}'",
    )
    _check_direction(subject, at, node)
    _check_once(subject, at, node)


def _check_direction(subject: Subject, at: arrays.Ids, node: np.ndarray) -> None:
    nodes = subject.nnet.nodes
    named = [nodes[each] for each in node.tolist()]
    is_output = np.array([isinstance(each, OutputNode) for each in named], np.bool_)
    is_input = np.array([isinstance(each, InputNode | ComponentNode) for each in named], np.bool_)
    accepts = subject.opcodes[at] == commands.AcceptInput.OPCODE
    backward = (subject.segment(at) > 0) & (len(subject.segment_ends) == 1)
    wants_input: arrays.Bools = accepts != backward
    right = np.where(wants_input, is_input, is_output)

    def message(i: int) -> str:
        part = "after" if backward[i] else "before"
        wanted = "an input" if wants_input[i] else "an output"
        kind = type(nodes[node[i]]).__name__
        return f"expected {wanted} {part} the marker, found '{nodes[node[i]].name}' ({kind})"

    subject.require(right, at, message)


def _check_once(subject: Subject, at: arrays.Ids, node: np.ndarray) -> None:
    keys = np.stack([subject.segment(at), subject.opcodes[at], node])
    seen: set[tuple[int, ...]] = set()
    once = np.ones(len(at), dtype=np.bool_)
    for i, key in enumerate(map(tuple, keys.T.tolist())):
        once[i] = key not in seen
        seen.add(key)
    subject.require(
        once, at, lambda i: f"node '{subject.nnet.nodes[node[i]].name}' is named twice in a segment"
    )


def check_rounds(subject: Subject) -> None:
    """Checks where a loop goes back, and that it ends segments on its way.

    1. There is at most one GotoLabel, and it is the last command.
    2. Its label comes before it and begins a segment: it is the first command, or comes just after
       a NoOperationMarker.
    3. A NoOperationMarker comes between them; without one a round would never stop.
    """
    gotos = subject.positions(commands.GotoLabel)
    if not len(gotos):
        return
    if len(gotos) > 1 or gotos[0] != len(subject.table) - 1:
        subject.fail("GotoLabel: expected as the last command only", int(gotos[0]))
    goto = int(gotos[0])
    label = int(subject.operand(gotos, commands.GotoLabel, "label")[0])
    ends = subject.segment_ends
    if label and not np.isin(label - 1, ends):
        subject.fail(f"GotoLabel: the label c{label} does not begin a segment", goto)
    if not (ends > label).any():
        subject.fail(f"GotoLabel: no segment ends between the label c{label} and this", goto)


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
    using = arrays.where(named != 0)
    component_of = dict(zip(using.tolist(), table[using, 2].tolist(), strict=True))
    uses_memo = (subject.analysis.component_properties & int(Property.USES_MEMO)) != 0
    for at, opcode, memo in zip(
        using.tolist(), table[using, 0].tolist(), named[using].tolist(), strict=True
    ):
        component, kind = component_of[at], subject.name(at)
        if not uses_memo[component]:
            name, _ = subject.component(component)
            subject.fail(f"{kind}: memo = {memo}, but component '{name}' makes no memos", at)
        if opcode == commands.Propagate.OPCODE:
            if memo in made:
                subject.fail(f"{kind}: memo {memo} was already made by c{made[memo]}", at)
            made[memo] = at
            continue
        if memo not in made:
            subject.fail(f"{kind}: memo {memo} is used, but no Propagate made it before", at)
        if component_of[made[memo]] != component:
            subject.fail(f"{kind}: memo {memo} was made by another component, c{made[memo]}", at)
        if opcode != commands.StoreStats.OPCODE:
            if memo in spent:
                subject.fail(f"{kind}: memo {memo} was already used up by c{spent[memo]}", at)
            spent[memo] = at
        used.add(memo)
    for memo, at in made.items():
        if memo not in used:
            subject.fail(f"Propagate: memo {memo} is made, but never used", at)


LARGEST_RANGE = 1000.0


def check_compression(subject: Subject) -> None:
    """Checks that compressed matrices can be used again.

    1. The types of compression exist, and have ranges that fit them. A range is between 0 and 1000.
       It is 0 for one bit, and otherwise only if a type can keep signs alone.
    2. Nothing accesses a matrix between CompressMatrix and DecompressMatrix, and nothing is
       decompressed that is not compressed.
    """
    at = subject.positions(commands.CompressMatrix)
    types = subject.operand(at, commands.CompressMatrix, "compression_type")
    known = sorted(commands.COMPRESSED_BITS)
    subject.require(
        np.isin(types, known),
        at,
        lambda i: f"compression_type = {types[i]}, expected one of {known}",
    )
    alphas = np.ascontiguousarray(subject.table[at, commands.ALPHA_COLUMN], np.int32).view(
        np.float32
    )
    subject.require(
        (alphas >= 0.0) & (alphas <= LARGEST_RANGE),
        at,
        lambda i: f"alpha = {alphas[i]:g}, expected a range from 0 to {LARGEST_RANGE:g}",
    )
    of_signs = np.isin(types, [each for each in known if commands.keeps_sign_only(each, 0.0)])
    subject.require(
        of_signs | (alphas != 0.0),
        at,
        lambda i: f"alpha = 0 is not allowed for compression_type {types[i]}",
    )
    subject.require(
        (types != commands.ONE_BIT) | (alphas == 0.0),
        at,
        lambda i: f"alpha = {alphas[i]:g}, expected 0: one bit has no range",
    )
    at = subject.positions(commands.CompressMatrix, commands.DecompressMatrix)
    named = subject.operand(at, commands.CompressMatrix, "matrix")
    for matrix in sorted({*subject.computation.submatrices[named, MATRIX].tolist()}):
        packed: int | None = None  # the command that compressed it
        for command in subject.analysis.matrix_accesses[matrix][0].tolist():
            if subject.opcodes[command] == commands.DecompressMatrix.OPCODE:
                if packed is None:
                    subject.fail(f"m{matrix} is not compressed", command)
                packed = None
            elif packed is not None:
                subject.fail(
                    f"{subject.name(command)}: m{matrix} is accessed, but compressed since "
                    f"c{packed}",
                    command,
                )
            elif subject.opcodes[command] == commands.CompressMatrix.OPCODE:
                packed = command


Check = tuple[str, Callable[[Subject], None]]
"""The name of a check, and a function that fails if a computation does not pass it."""

FITTING: tuple[Check, ...] = (
    ("network", check_network),
    ("components", operands.check_components),
    ("world", check_world),
    ("rows", operands.check_rows),
    ("loop", check_rounds),
    ("compression", check_compression),
)
"""The checks that every command can run: its operands have the right sizes, are not compressed, and
a loop ends."""

RUNNING: tuple[Check, ...] = (
    *FITTING,
    ("allocation", allocation.check_allocation),
    ("memos", check_memos),
    ("memory plan", allocation.check_memory_plan),
)
"""The checks that hold for everything that can run, sensible or not."""


def check_fitting(nnet: Nnet, computation: NnetComputation) -> None:
    """Checks that components and nodes are those of the network, sizes and lists fit, loops end.

    And that what is compressed is decompressed before it is used.

    Args:
        nnet: The network.
        computation: The computation, optimized or not.

    Raises:
        CheckError: Names the check, the command by number and text, the operand, the value and
            what was expected, and shows the neighbouring commands.
    """
    run_checks(FITTING, Subject.of(nnet, computation))


def check_runnable(nnet: Nnet, computation: NnetComputation) -> None:
    """Checks that a computation can be run with a network, whether or not the result makes sense.

    Components and nodes are those of the network, sizes and lists fit, a loop goes from the end of
    a segment to the beginning of one, and matrices and memos exist when they are used. The check
    takes a few milliseconds at most, so that it can run whenever a computation is bound to memory.
    Computations do not hold names and parameters, so a network with other names or parameters
    passes. The fingerprint, if the computation has one, shows all other differences.

    Args:
        nnet: The network that the computation is to run with.
        computation: The computation, optimized or not.

    Raises:
        CheckError: As by `check_fitting`; if it names a component or node, the computation is
            most likely of another network.
    """
    run_checks(RUNNING, Subject.of(nnet, computation))


def run_checks(checks: Iterable[Check], subject: Subject) -> None:
    """Runs checks in their order.

    Raises:
        CheckError: One of them failed.
    """
    for name, check in checks:
        try:
            check(subject)
        except FaultError as fault:
            from nnet3_computation.text import list_commands  # few computations have faults

            at = fault.command
            listing = "" if at is None else list_commands(subject.computation, subject.nnet, at)
            raise CheckError(fault.message, check=name, command=at, listing=listing) from None
