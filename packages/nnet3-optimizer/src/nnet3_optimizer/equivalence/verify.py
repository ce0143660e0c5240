"""Comparison of the behaviour of two computations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_computation.checks import check_fitting
from nnet3_computation.commands import is_loop
from nnet3_computation.computation import NnetComputation
from nnet3_computation.text import command_lines

from nnet3_optimizer.equivalence.behaviour import Behaviour
from nnet3_optimizer.equivalence.differences import compare_behaviour
from nnet3_optimizer.equivalence.execution.execution import execute
from nnet3_optimizer.equivalence.execution.symbolic_state import SymbolicState
from nnet3_optimizer.equivalence.pattern import IrregularError, Pattern, num_sequences
from nnet3_optimizer.equivalence.symbols.unknowns import Unknowns
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_Way = tuple[int, int | None, bool]
"""Sequences, segments and thoroughness of a run."""

ROUNDS = 3
_SHOWN = 5


def verify_equivalent(nnet: Nnet, before: NnetComputation, after: NnetComputation) -> None:
    """Proves that two computations give the same results for all inputs and parameters.

    The proof executes both on symbols: a computation is a straight line of commands on matrices of
    known sizes, so there is nothing to search and nothing is left out. Components are unknown
    functions; sums do not depend on their order; scales are exact. The proof compares every matrix
    that the user gets, row by row, and for each component the sums of the contributions to its
    update and to its statistics. A result that depends on undefined elements equals nothing.

    Arguments of components are compared exactly, sums as elements of a field of 128 bits: a wrong
    "equal" has a probability below 2**-80, for computations of any size that fits into memory.

    A loop is compared with a straight line over the segments of the straight line, and with another
    loop over some rounds.

    Args:
        nnet: The network.
        before: A computation.
        after: Another one.

    Raises:
        EquivalenceError: They differ; the message names the first result that does, and the
            element or the calls. Or they were compiled for different requests.
        CheckError: A command of one of them cannot run, because sizes or lists do not fit; or a
            computation was compiled for another network.
    """
    for computation in (before, after):
        check_fitting(nnet, computation)
    _compare_requests(before, after)
    Prover(nnet).verify(before, after)


class Prover:
    """Compares computations for one network, each with the next; see `verify_equivalent`."""

    def __init__(self, nnet: Nnet) -> None:
        self._nnet = nnet
        self._unknowns = Unknowns()
        self._last: tuple[NnetComputation, _Way, Behaviour] | None = None

    def verify(
        self, before: NnetComputation, after: NnetComputation, *, same_calls: bool = False
    ) -> None:
        """Proves that two computations give the same results.

        Args:
            before: A computation. If it was `after` in the previous call, it is not executed again.
            after: Another one.
            same_calls: Whether each component has to be updated by the same calls, in the same
                order. The calls do not matter for a plain gradient, which is a sum over all rows.
                They matter if updates are preconditioned, because the preconditioning depends on
                earlier calls.

        Raises:
            EquivalenceError: They differ.
        """
        segments = _num_segments(before, after)
        sequences = num_sequences(before)
        if sequences > 1 and sequences == num_sequences(after):
            try:
                self.compare(before, after, sequences, segments, same_calls)
            except IrregularError:
                pass
            else:
                return
        self.compare(before, after, 1, segments, same_calls)

    def compare(
        self,
        before: NnetComputation,
        after: NnetComputation,
        sequences: int,
        segments: int | None = None,
        same_calls: bool = False,
    ) -> None:
        """Executes and compares two computations.

        Args:
            before: A computation.
            after: Another one.
            sequences: The number of sequences that are assumed to be treated alike; 1 to follow all
                rows.
            segments: The number of segments to run; None to run all commands once.
            same_calls: See `verify`.

        Raises:
            EquivalenceError: They differ.
            IrregularError: They may not treat so many sequences alike.
        """
        for thorough in (False, True):
            way = sequences, segments, thorough
            one = self._last_behaviour(before, way) or self._execute(before, way)
            other = self._execute(after, way)
            self._last = after, way, other
            try:
                compare_behaviour(self._nnet, one, other, sequences, same_calls=same_calls)
            except EquivalenceError as error:
                if thorough:
                    raise _explained(error, self._nnet, (before, after)) from None
            else:
                break

    def _execute(self, computation: NnetComputation, way: _Way) -> Behaviour:
        sequences, segments, thorough = way
        pattern = Pattern(computation, sequences)
        state = SymbolicState(self._nnet, computation, self._unknowns, pattern, thorough=thorough)
        return execute(state, segments)

    def _last_behaviour(self, computation: NnetComputation, way: _Way) -> Behaviour | None:
        """Returns the result for `after` of the previous call, if this is the same run."""
        if self._last is None or self._last[0] is not computation or self._last[1] != way:
            return None
        return self._last[2]


def _compare_requests(before: NnetComputation, after: NnetComputation) -> None:
    """Raises an EquivalenceError if the fingerprints of their requests differ.

    A loop may come from more segments than the computation that it is compared with.
    """
    one, other = before.requests, after.requests
    if not one or not other:
        return
    loops = is_loop(before.command_table) or is_loop(after.command_table)
    if len(one) != len(other) and not loops:
        raise EquivalenceError(
            f"they were compiled for {len(one)} and for {len(other)} segments", what="requests"
        )
    for number, (made, wanted) in enumerate(zip(one, other, strict=False)):
        difference = made.difference(wanted)
        if difference is not None:
            raise EquivalenceError(
                f"they were compiled for different requests; segment {number} of the first: "
                f"{difference}",
                what="requests",
            )


def _explained(
    error: EquivalenceError,
    nnet: Nnet,
    computations: tuple[NnetComputation, NnetComputation],
) -> EquivalenceError:
    """Adds to the message the commands that the error names by their positions."""
    lines = [str(error)]
    for when, computation, positions in zip(
        ("before", "after"), computations, error.commands, strict=True
    ):
        shown = command_lines(computation, nnet, positions[:_SHOWN])
        lines += [f"  {when}, {line}" for line in shown]
    return EquivalenceError(
        "\n".join(lines),
        what=error.what,
        segment=error.segment,
        row=error.row,
        column=error.column,
        commands=error.commands,
    )


def _num_segments(before: NnetComputation, after: NnetComputation) -> int | None:
    """Returns how many segments to compare; None for all of two straight lines."""
    straight = [each for each in (before, after) if not is_loop(each.command_table)]
    if len(straight) == 2:
        return None
    if straight:
        return len(straight[0].segment_ends)
    return ROUNDS * max(len(each.segment_ends) for each in (before, after))
