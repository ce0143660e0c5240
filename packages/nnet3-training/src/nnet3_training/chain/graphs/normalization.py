"""Weights for the paths of a supervision: their weights in the denominator."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.fsts.machines import Machine
from nnet3_training.chain.fsts.operations import breadth_first
from nnet3_training.chain.supervision import ChainSupervision, state_times
from nnet3_training.errors import ExampleError

_MAX_STATES = 200_000
"""A supervision with more states than this is not made deterministic, as in Kaldi."""


class Normalization:
    """The normalization FST, with which supervisions are composed."""

    def __init__(self, fst: Fst, scale: float = 1.0) -> None:
        """Takes an FST, such as `make_normalization_fst` makes.

        Args:
            fst: An acceptor without epsilons; labels are 1 + the number of a pdf.
            scale: Multiplies its costs.

        Raises:
            ExampleError: the FST is no such acceptor, or the scale is negative or not finite.
        """
        if not (math.isfinite(scale) and scale >= 0.0):
            raise ExampleError(
                f"the scale of the normalization FST must be at least 0 (got {scale:g})"
            )
        if not fst.is_acceptor or not fst.num_states or bool((fst.labels == 0).any()):
            raise ExampleError("the normalization FST must be an acceptor without epsilons")
        with np.errstate(invalid="ignore"):
            finals = np.where(np.isfinite(fst.final_costs), fst.final_costs * scale, np.inf)
        scaled = attrs.evolve(fst, costs=fst.costs * scale, final_costs=finals)
        self._machine = Machine.of(scaled).sorted()

    def composed(self, fst: Fst) -> Fst:
        """The paths of an acceptor that are in the normalization FST, with the costs of both.

        Args:
            fst: An acceptor without epsilons.

        Returns:
            Such an acceptor; without states if there is no such path.
        """
        return Machine.of(fst).composed(self._machine).fst()

    def added(self, supervision: ChainSupervision) -> ChainSupervision | None:
        """The supervision with the costs that its paths have in the normalization FST.

        Its FST is deterministic and minimal; "end to end" supervisions keep their loops.

        Args:
            supervision: Of one sequence.

        Returns:
            None if no path with a cost within float32 is in the normalization FST, or there are too
            many states.

        Raises:
            ExampleError: the supervision has several sequences.
        """
        if supervision.num_sequences != 1:
            raise ExampleError(
                f"costs are added to supervisions of one sequence, found "
                f"{supervision.num_sequences}: too late"
            )
        [fst] = supervision.fsts
        machine = Machine.of(fst).without_epsilons()
        if supervision.fst is None:
            looped = machine.composed(self._machine)
            if not looped.num_states:
                return None
            return attrs.evolve(supervision, e2e_fsts=[looped.fst()])
        if not _made_small(machine) or not machine.composed(self._machine).num_states:
            return None
        # Added costs can exceed float32; such a path is dropped.
        if not _made_small(machine) or not machine.num_states:
            return None
        return attrs.evolve(supervision, fst=breadth_first(machine.fst()))


def _made_small(machine: Machine) -> bool:
    """Makes a machine deterministic and minimal; returns False if it is too large for that."""
    if machine.num_states >= _MAX_STATES:
        return False
    if machine.determinized(_MAX_STATES).num_states >= _MAX_STATES - 1:
        return False
    machine.minimized()
    return True


class SupervisionSplitter:
    """Gives parts of a supervision."""

    def __init__(self, supervision: ChainSupervision) -> None:
        """Takes a supervision.

        Args:
            supervision: Of one sequence, with an FST without epsilons.

        Raises:
            ExampleError: it is no such supervision.
        """
        if supervision.fst is None or supervision.num_sequences != 1:
            raise ExampleError("only the supervision of one sequence with times can be split")
        self._supervision, self._fst = supervision, supervision.fst
        self._times = state_times(self._fst)
        if int(self._times[-1]) != supervision.frames_per_sequence:
            raise ExampleError(
                f"the FST of a supervision of {supervision.frames_per_sequence} frames has paths "
                f"of {self._times[-1]}"
            )

    def part(self, first_frame: int, num_frames: int) -> ChainSupervision:
        """The supervision of some frames.

        Args:
            first_frame: The first of them.
            num_frames: Number of frames.

        Returns:
            A supervision whose FST begins with arcs that read nothing, which
            `Normalization.added` removes.

        Raises:
            ExampleError: some of these frames do not exist.
        """
        fst, times = self._fst, self._times
        if not 0 <= first_frame < first_frame + num_frames <= self._supervision.frames_per_sequence:
            raise ExampleError(
                f"expected frames of 0 to {self._supervision.frames_per_sequence - 1}, found "
                f"{first_frame} to {first_frame + num_frames - 1}"
            )
        begin, end = np.searchsorted(times, [first_frame, first_frame + num_frames]).tolist()
        first = np.flatnonzero(times[begin:end] == first_frame)
        arcs = slice(int(fst.splits[begin]), int(fst.splits[end]))
        last = end - begin + 1
        finals = np.full(last + 1, np.inf, dtype=np.float32)
        finals[last] = 0.0
        zeros = np.zeros(len(first), dtype=np.int32)
        part = Fst.from_arcs(
            start=0,
            final_costs=finals,
            sources=np.concatenate([zeros, fst.sources[arcs] - begin + 1]),
            labels=np.concatenate([zeros, fst.labels[arcs]]),
            costs=np.concatenate([zeros.astype(np.float32), fst.costs[arcs]]),
            destinations=np.concatenate(
                [first + 1, np.minimum(fst.destinations[arcs], end) - begin + 1]
            ),
        )
        return attrs.evolve(
            self._supervision,
            frames_per_sequence=num_frames,
            fst=part,
            alignment_pdfs=(),
            deriv_weights=(),
        )
