"""The errors of this package; all derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.indexes import IndexArray

Row = tuple[str, tuple[int, int, int]]
"""A row of a node: the name of the node, and (n, t, x)."""

_SHOWN_STEPS = 12
_SHOWN_RANGES = 8
_SHOWN_SEQUENCES = 6


class ContextError(Nnet3Error):
    """The left and right context of a network is not defined, or could not be found."""


class MissingFrames(NamedTuple):
    """Rows of an input node that would have to be given.

    Attributes:
        node: name of the input node.
        sequences: the values of n; all of them lack the same rows.
        is_all: whether these are all sequences of the request.
        x: the value of x.
        ranges: first and last t of each run of missing rows, ascending.
    """

    node: str
    sequences: tuple[int, ...]
    is_all: bool
    x: int
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        runs = [
            str(first) if first == last else f"{first} to {last}" for first, last in self.ranges
        ]
        where = f", x = {self.x}" if self.x else ""
        whose = "" if self.is_all else f", for n = {listed(self.sequences, _SHOWN_SEQUENCES)}"
        return f"'{self.node}' at t = {listed(runs, _SHOWN_RANGES)}{where}{whose}"


class NotComputableError(Nnet3Error):
    """A requested output cannot be computed from the inputs of the request.

    Attributes:
        missing_outputs: for each output with rows that cannot be computed, the (K, 3) indexes of
            these rows, columns n, t, x, in their order.
        chain: begins with the first of these rows. Each row needs the next one, which cannot be
            computed either. The last one is usually a row of an input node.
        missing_inputs: the rows of input nodes that would have to be given.
        context: left and right context of the network, in frames, or None where that is not
            defined.
    """

    def __init__(
        self,
        *,
        missing_outputs: Mapping[str, IndexArray],
        num_requested: Mapping[str, int],
        chain: Sequence[Row],
        missing_inputs: Sequence[MissingFrames],
        context: tuple[int, int] | None,
        reason: str,
    ) -> None:
        """Makes the message.

        Args:
            missing_outputs: see the attributes.
            num_requested: for each output, the number of requested rows.
            chain: see the attributes.
            missing_inputs: see the attributes.
            context: see the attributes.
            reason: the fault of the last row of the chain, as the end of a sentence.
        """
        self.missing_outputs = dict(missing_outputs)
        self.chain = tuple(chain)
        self.missing_inputs = tuple(missing_inputs)
        self.context = context
        counts = ", ".join(
            f"{len(rows)} of {num_requested[name]} rows of '{name}'"
            for name, rows in missing_outputs.items()
        )
        lines = [f"cannot compute {counts}; the first needs, one after the other:"]
        lines += [f"    {line}" for line in _shown_chain(self.chain, reason)]
        if self.missing_inputs:
            lines.append("missing: " + "; ".join(map(str, self.missing_inputs)))
        if context is not None:
            left, right = context
            lines.append(
                f"the network needs {left} frames to the left and {right} to the right of an "
                f"output frame"
            )
        super().__init__("\n".join(lines))


class UnboundedComputationError(Nnet3Error):
    """The outputs need infinitely many rows: a recurrence can always be followed one step further.

    Attributes:
        nodes: names of the nodes of the recurrence.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = tuple(nodes)
        super().__init__(
            f"the recurrence through {listed([repr(node) for node in nodes], 6)} has no end: each "
            f"of its steps can be computed and needs one more"
        )


def _shown_chain(chain: Sequence[Row], reason: str) -> list[str]:
    """Returns a line for each row of a chain, without the middle of a long one."""
    lines = [f"'{name}' at (n, t, x) = {index}" for name, index in chain]
    lines[-1] += f", {reason}"
    if len(lines) > _SHOWN_STEPS:
        half = _SHOWN_STEPS // 2
        lines[half:-half] = [f"... {len(lines) - 2 * half} more ..."]
    return lines


def listed(items: Sequence[object], shown: int) -> str:
    """Returns at most `shown` items, with commas."""
    text = ", ".join(map(str, items[:shown]))
    return text if len(items) <= shown else f"{text} and {len(items) - shown} more"
