"""Checks that a computation does what its network says, in each component, copy and row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from nnet3_computation import commands
from nnet3_computation.analysis import MATRIX, CommandKinds
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.checks import SUMS, Subject
from nnet3_computation.computation import MatrixDebugInfo, N
from nnet3_descriptors import ComponentInputNode, Nnet, OutputNode, descriptors, structure
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.values import remembered

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
    at = subject.positions(commands.Propagate)
    at = at[at < subject.segment_ends[0]]
    forward = _count(subject, at, commands.Propagate, "output")
    _check_precomputed(subject, at)
    _check_backward(subject, forward)
    _check_statistics(subject, forward)


def _count(subject: Subject, at: Ids, command_type: type[commands.Command], output: str) -> Counts:
    """Returns for each component the rows of the output over all these commands."""
    component = subject.operand(at, command_type, "component")
    rows = subject.rows(subject.operand(at, command_type, output))
    count = len(subject.nnet.components)
    return np.bincount(component, weights=rows, minlength=count).astype(np.int64)


def _check_backward(subject: Subject, forward: Counts) -> None:
    at = subject.positions(commands.Backprop, commands.BackpropNoModelUpdate)
    if not len(at):
        return
    component = subject.operand(at, commands.Backprop, "component")
    is_updatable = (subject.analysis.component_properties[component] & int(Property.UPDATABLE)) != 0
    updates: Bools = (subject.opcodes[at] == commands.Backprop.OPCODE) & is_updatable
    for chosen, what in (
        (
            at[subject.operand(at, commands.Backprop, "input_deriv") != 0],
            "for derivatives of its input",
        ),
        (at[updates], "for its update"),
    ):
        backward = _count(subject, chosen, commands.Backprop, "output_deriv")
        _require(
            subject,
            backward <= forward,
            chosen,
            lambda c, b=backward, w=what: (  # type: ignore[misc]
                f"runs backward over {b[c]} rows in all {w}, but forward over {forward[c]}"
            ),
        )


def _check_statistics(subject: Subject, forward: Counts) -> None:
    at = subject.positions(commands.StoreStats)
    if not len(at):
        return
    stored = _count(subject, at, commands.StoreStats, "output")
    properties = subject.analysis.component_properties
    stores = (properties & int(Property.STORES_STATS)) != 0
    _require(
        subject,
        (stored == forward) | ~stores,
        np.concatenate([at, subject.positions(commands.Propagate)]),
        lambda c: f"stores statistics of {stored[c]} rows in all, but runs over {forward[c]}",
    )


def _check_precomputed(subject: Subject, propagates: Ids) -> None:
    number = subject.operand(propagates, commands.Propagate, "precomputed_indexes")
    count = len(subject.computation.precomputed_indexes)
    owner = np.full(count, -1, dtype=np.int64)
    owner[number] = subject.operand(propagates, commands.Propagate, "component")
    uses = np.bincount(number, minlength=count)
    subject.require(
        (uses[number] == 1) | (number == 0),
        propagates,
        lambda i: f"precomputed_indexes = {number[i]} serve {uses[number[i]]} Propagate commands",
    )
    at = subject.positions(commands.Backprop, commands.BackpropNoModelUpdate)
    number = subject.operand(at, commands.Backprop, "precomputed_indexes")
    component = subject.operand(at, commands.Backprop, "component")

    def message(i: int) -> str:
        made = owner[number[i]]
        of = f"component '{subject.component(int(made))[0]}'" if made >= 0 else "no component"
        return f"precomputed_indexes = {number[i]} served {of} in the forward part"

    subject.require((number == 0) | (owner[number] == component), at, message)


def _require(subject: Subject, valid: Bools, at: Ids, message: Callable[[int], str]) -> None:
    """Fails for the first component that is not valid, at the last of its commands."""
    if valid.all():
        return
    wrong = int(np.flatnonzero(~valid)[0])
    of_component = at[subject.operand(at, commands.Propagate, "component") == wrong]
    name, component = subject.component(wrong)
    subject.fail(f"component '{name}' ({component.type}) {message(wrong)}", int(of_component[-1]))


def check_backward_lists(subject: Subject) -> None:
    """Checks AddRows, CopyRows and AddRowRanges after the marker that read derivatives.

    Commands after the marker may also read values: to compute others again, or to gather them for
    model updates.

    1. `indexes` name no row twice.
    2. `indexes_ranges` share no rows; a missing range is (-1, -1).
    """
    if len(subject.segment_ends) != 1:
        return
    marker = int(subject.segment_ends[0])
    by_rows = _after(subject.positions(commands.AddRows, commands.CopyRows), marker)
    by_ranges = _after(subject.positions(commands.AddRowRanges), marker)
    if not len(by_rows) and not len(by_ranges):
        return
    is_derivative = _derivatives(subject, marker)
    at = by_rows[is_derivative[_input_matrix(subject, by_rows)]]
    if len(at):
        _check_indexes(subject, at)
    at = by_ranges[is_derivative[_input_matrix(subject, by_ranges)]]
    if len(at):
        _check_ranges(subject, at)


def _after(at: Ids, marker: int) -> Ids:
    return at[np.searchsorted(at, marker) :]


def _input_matrix(subject: Subject, at: Ids) -> commands.Table:
    matrix: commands.Table = subject.computation.submatrices[
        subject.operand(at, commands.AddRows, "input"), MATRIX
    ]
    return matrix


def _derivatives(subject: Subject, marker: int) -> Bools:
    """Returns (M,) bool: which matrices hold derivatives, according to the commands."""
    accepted = _after(subject.positions(commands.AcceptInput), marker)
    backward = subject.positions(commands.Backprop, commands.BackpropNoModelUpdate)
    named = np.concatenate(
        [
            subject.operand(accepted, commands.AcceptInput, "matrix"),
            subject.operand(backward, commands.Backprop, "output_deriv"),
            subject.operand(backward, commands.Backprop, "input_deriv"),
        ]
    )
    is_derivative = np.zeros(len(subject.computation.matrices), dtype=np.bool_)
    is_derivative[subject.computation.submatrices[named, MATRIX]] = True
    return is_derivative


def _check_indexes(subject: Subject, at: Ids) -> None:
    numbers = subject.operand(at, commands.AddRows, "indexes")
    given = subject.operand(at, commands.AddRows, "input")
    for which, number in enumerate(numbers.tolist()):
        rows = subject.computation.indexes[number]
        counts = np.bincount(rows[rows >= 0])
        if counts.max(initial=0) > 1:
            subject.fail(
                f"{subject.name(int(at[which]))}: indexes name row {int(counts.argmax())} of "
                f"input = {subject.describe(int(given[which]))} twice, which is not expected in "
                "the backward part",
                int(at[which]),
            )


def _check_ranges(subject: Subject, at: Ids) -> None:
    numbers = subject.operand(at, commands.AddRowRanges, "indexes_ranges")
    lists = [subject.computation.indexes_ranges[number] for number in numbers.tolist()]
    ranges = np.concatenate(lists).astype(np.int64)
    owner = np.repeat(np.arange(len(at)), [len(each) for each in lists])
    empty = ranges[:, 0] >= ranges[:, 1]
    odd = np.flatnonzero(empty & (ranges[:, 0] >= 0))
    if len(odd):
        begin, end = ranges[odd[0]].tolist()
        subject.fail(
            f"AddRowRanges: indexes_ranges have {begin}..{end}, expected rows or none",
            int(at[owner[odd[0]]]),
        )
    begin, end, owner = ranges[~empty, 0], ranges[~empty, 1], owner[~empty]
    order = np.lexsort((begin, owner))
    begin, end, owner = begin[order], end[order], owner[order]
    shared = np.flatnonzero((owner[1:] == owner[:-1]) & (begin[1:] < end[:-1]))
    if len(shared):
        first = int(shared[0])
        given = subject.operand(at, commands.AddRowRanges, "input")[owner[first]]
        subject.fail(
            f"AddRowRanges: indexes_ranges name row {begin[first + 1]} of input = "
            f"{subject.describe(int(given))} twice, which is not expected in the backward part",
            int(at[owner[first]]),
        )


_SETTING = CommandKinds.of(commands.SetConst)


def check_scales(subject: Subject) -> None:
    """Checks the scales of copies and sums, and the constants of SetConst.

    They are scales and constants of the network's descriptors; a constant may be 0, too. After the
    marker scales may be negated: `recompute_activations` computes a term of a sum by subtracting
    the other terms.
    """
    for kinds, expected, what in (
        (SUMS, scales(subject.nnet), "the scales of the network's descriptors"),
        (_SETTING, constants(subject.nnet), "the constants of the network's descriptors"),
    ):
        at = kinds.positions(subject.opcodes)
        alpha = subject.table[at, commands.ALPHA_COLUMN].view(np.float32)
        known = _among(alpha, expected)
        if not known.all():
            known |= _among(-alpha, expected) & (subject.segment(at) > 0)
        subject.require(known, at, partial(_wrong_scale, alpha, expected, what))


def _wrong_scale(
    alpha: npt.NDArray[np.float32], expected: npt.NDArray[np.float32], what: str, which: int
) -> str:
    listed = ", ".join(f"{value:g}" for value in expected.tolist())
    return f"alpha = {alpha[which]:g}, expected one of {listed} ({what})"


def _among(values: npt.NDArray[np.float32], ascending: npt.NDArray[np.float32]) -> Bools:
    nearest = ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)]
    among: Bools = nearest == values
    return among


@remembered
def scales(nnet: Nnet) -> npt.NDArray[np.float32]:
    """Returns the scales of descriptors, ascending; 1 is always among them."""
    found = {1.0}
    for part in _parts(nnet):
        for leaf in part.leaves:
            found |= _scales_of(leaf)
    return np.array(sorted(found), dtype=np.float32)


def _scales_of(leaf: descriptors.ForwardingDescriptor) -> set[float]:
    if isinstance(leaf, descriptors.Scale):
        return {leaf.factor}
    return set().union(*map(_scales_of, leaf.sources)) or {1.0}


@remembered
def constants(nnet: Nnet) -> npt.NDArray[np.float32]:
    """Returns the constants of descriptors, ascending; 0 is always among them."""
    found = {0.0}
    for part in _parts(nnet):
        found |= _constants_of(part)
    return np.array(sorted(found), dtype=np.float32)


def _constants_of(part: descriptors.SumDescriptor) -> set[float]:
    match part:
        case descriptors.Const():
            return {part.value}
        case descriptors.Sum():
            first, second = _constants_of(part.first), _constants_of(part.second)
            return {float(np.float32(a + b)) for a in first for b in second}
        case descriptors.Failover():
            return _constants_of(part.first) | _constants_of(part.second)
        case descriptors.IfDefined():
            return _constants_of(part.source) | {0.0}
        case _:
            return {0.0}


@remembered
def _parts(nnet: Nnet) -> tuple[descriptors.SumDescriptor, ...]:
    """Returns the parts of all descriptors, except parts that only name a node."""
    with_descriptors = [
        node for node in nnet.nodes if isinstance(node, ComponentInputNode | OutputNode)
    ]
    return tuple(
        part
        for node in with_descriptors
        for part in node.descriptor.parts
        if type(part) is not descriptors.Node
    )


def check_debug_info(subject: Subject) -> None:
    """Checks debug info, where there is any.

    1. A matrix has as many rows as its debug info, and as many columns as the node has dimensions.
    2. No row belongs to a negative n.
    """
    computation = subject.computation
    infos = computation.matrix_debug_info[1:]
    if not infos:
        return
    # There are thousands of entries, so the loop does as little as possible.
    patterns = [info.pattern for info in infos]
    node = np.array([each.item(0) if len(each) else -1 for each in patterns])
    count = np.array([len(each) for each in patterns])
    count *= np.maximum([len(info.sequences) for info in infos], 1)
    rows, cols = computation.matrices[1:].T
    dims = structure.node_dims(subject.nnet)
    wrong = node >= len(dims)
    wrong |= count != rows
    wrong |= dims[np.where(wrong, 0, node)] != cols
    wrong |= _has_negative_n(infos)
    wrong &= node >= 0  # the others have no debug info
    if wrong.any():
        first = int(where(wrong)[0])
        _fail_debug_info(subject, first + 1, infos[first], int(rows[first]), int(cols[first]))


def _has_negative_n(infos: Sequence[MatrixDebugInfo]) -> Bools:
    # Most share their sequences, and it costs less to check all numbers at once.
    numbers = [info.sequences if len(info.sequences) else info.pattern[:, N] for info in infos]
    distinct = {id(each): each for each in numbers}.values()
    if np.concatenate(list(distinct)).min(initial=0) >= 0:
        return np.zeros(len(infos), dtype=np.bool_)
    return np.array([bool((each < 0).any()) for each in numbers])


def _fail_debug_info(
    subject: Subject, matrix: int, info: MatrixDebugInfo, rows: int, cols: int
) -> NoReturn:
    """Says what is wrong with the debug info of a matrix of this size."""
    nodes = subject.nnet.nodes
    if info.num_rows != rows:
        subject.fail(f"debug info of m{matrix} is of {info.num_rows} rows, expected {rows}")
    if info.node >= len(nodes):
        subject.fail(f"debug info of m{matrix} names node {info.node} of {len(nodes)}")
    name = nodes[info.node].name
    dim = subject.nnet.node_dim(name)
    if dim != cols:
        subject.fail(
            f"m{matrix} has {cols} columns, expected {dim} (the dimension of node '{name}', "
            "says its debug info)"
        )
    subject.fail(f"debug info of m{matrix} has a negative n")
