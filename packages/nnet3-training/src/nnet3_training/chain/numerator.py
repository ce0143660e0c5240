"""The numerator of LF-MMI: the probability of the correct paths, by sums in the log domain."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnet3_training.chain.denominator import modules_of
from nnet3_training.chain.supervision import ChainSupervision, check_labels, state_times
from nnet3_training.egs.examples import SparsePosteriors
from nnet3_training.errors import ExampleError

Array = npt.NDArray[Any]
_Integers = npt.NDArray[np.int64]


class _Arcs(NamedTuple):
    """The arcs of one frame, of all sequences side by side.

    Attributes:
        places: (arcs,), the number of the output element that each arc reads, counted row by row.
        costs: (arcs,) float64.
        sources: (arcs,), states.
        destinations: (arcs,), ascending.
        from_source: (arcs,), an order of the arcs in which sources ascend.
    """

    places: _Integers
    costs: npt.NDArray[np.float64]
    sources: _Integers
    destinations: _Integers
    from_source: _Integers


class _Plan(NamedTuple):
    """All sequences, as arcs frame by frame.

    Attributes:
        frames: The arcs of each frame.
        starts: The start states of all sequences.
        final_costs: (states,) float64.
        groups: The states that each sequence may end in.
    """

    frames: list[_Arcs]
    starts: _Integers
    final_costs: npt.NDArray[np.float64]
    groups: list[_Integers]


def _arcs_by_frame(
    frames: _Integers,
    num_frames: int,
    *,
    places: _Integers,
    costs: npt.NDArray[np.float32],
    sources: _Integers,
    destinations: _Integers,
) -> list[_Arcs]:
    """Arcs in any order, put into the order of frames and destinations, and cut at frames."""
    order = np.lexsort((destinations, frames))
    bounds = np.searchsorted(frames[order], np.arange(num_frames + 1)).tolist()
    from_source = np.lexsort((sources[order], frames[order]))
    columns = [each[order] for each in (places, costs.astype(np.float64), sources, destinations)]
    return [
        _Arcs._make((*(each[begin:end] for each in columns), from_source[begin:end] - begin))
        for begin, end in itertools.pairwise(bounds)
    ]


def numerator(
    supervision: ChainSupervision, output: Any, *, derivative: bool = True
) -> tuple[float, Any]:
    """Computes the log-probability of the correct paths, and its derivative.

    The paths read few elements of the output. These are copied to the processor, which sums over
    the paths; the posteriors of these elements are copied back.

    Args:
        supervision: The paths.
        output: (frames * sequences, pdfs), the rows of a frame side by side, of NumPy or CuPy.
        derivative: Whether the derivative is wanted.

    Returns:
        The log-probability, summed over sequences, -inf where no path is possible; and its
        derivative by the output, the posteriors of pdfs, in the output's shape and on its device.

    Raises:
        ExampleError: the supervision is not epsilon-free, or its paths are of another length.
    """
    plan = _side_by_side(supervision)
    modules = modules_of(output)
    read, numbers = np.unique(
        np.concatenate([arcs.places for arcs in plan.frames]), return_inverse=True
    )
    places, flat = modules.put(read), output.reshape(-1)
    bounds = np.cumsum([len(arcs.places) for arcs in plan.frames])[:-1]
    elements = np.split(modules.get(flat[places])[numbers], bounds)
    scores = [values - arcs.costs for values, arcs in zip(elements, plan.frames, strict=True)]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        alphas = list(_forward(plan, scores))
        ends = [alphas[-1][group] - plan.final_costs[group] for group in plan.groups]
        totals = [float(np.logaddexp.reduce(each)) for each in ends]
        log_prob = float(sum(totals))
        if not derivative:
            return log_prob, None
        beta = np.full(len(plan.final_costs), -np.inf)
        for group, total in zip(plan.groups, totals, strict=True):
            beta[group] = -plan.final_costs[group] - total
        shares = []
        for arcs, score, alpha in zip(
            reversed(plan.frames), reversed(scores), reversed(alphas[:-1]), strict=True
        ):
            ahead = score + beta[arcs.destinations]
            shares.append(np.exp(alpha[arcs.sources] + ahead))
            beta = _summed(ahead[arcs.from_source], arcs.sources[arcs.from_source], len(beta))
    sums = np.bincount(numbers, np.concatenate(shares[::-1]), minlength=len(read))
    posteriors = modules.arrays.zeros_like(flat)
    posteriors[places] = modules.put(sums.astype(flat.dtype))
    return log_prob, posteriors.reshape(output.shape)


def frame_posteriors(supervision: ChainSupervision) -> SparsePosteriors:
    """The posteriors of pdfs in each frame, by the costs of the paths alone.

    Where paths are not bound to times, they are the pdfs of the alignment.

    Raises:
        ExampleError: the supervision is not epsilon-free, its paths are of another length, or there
            is neither an FST for all sequences nor an alignment.
    """
    frames, pdfs = supervision.num_frames, supervision.label_dim
    if supervision.fst is None:
        found = len(supervision.alignment_pdfs)
        if found != frames:
            raise ExampleError(
                f"expected a pdf for each of {frames} frames, because paths are not bound to "
                f"times, found {found}"
            )
        return SparsePosteriors.from_labels(supervision.alignment_pdfs, pdfs)
    _, derivative = numerator(supervision, np.zeros((frames, pdfs), np.float32))
    rows, classes = np.nonzero(derivative)
    return SparsePosteriors(
        dim=pdfs,
        splits=np.searchsorted(rows, np.arange(frames + 1)),
        classes=classes,
        weights=derivative[rows, classes],
    )


def _forward(plan: _Plan, scores: list[Array]) -> Iterator[Array]:
    """The log-probability of each state before each frame, and after the last."""
    alpha = np.full(len(plan.final_costs), -np.inf)
    alpha[plan.starts] = 0.0
    yield alpha
    for arcs, score in zip(plan.frames, scores, strict=True):
        alpha = _summed(alpha[arcs.sources] + score, arcs.destinations, len(alpha))
        yield alpha


def _summed(values: Array, states: _Integers, num_states: int) -> Array:
    """The logarithms of sums over the values of each state; states ascend."""
    result = np.full(num_states, -np.inf)
    if states.size:
        begins = np.flatnonzero(np.diff(states, prepend=-1))
        result[states[begins]] = np.logaddexp.reduceat(values, begins)
    return result


# ---- sequences side by side ----


def _side_by_side(supervision: ChainSupervision) -> _Plan:
    """The sequences of a supervision, frame by frame.

    The FST of several sequences is cut at the boundaries of sequences, if it has a single state at
    each: that state starts the next sequence, and a new state ends the one before. Otherwise the
    sequences are read one after the other.
    """
    if supervision.fst is None:
        return _end_to_end(supervision)
    fst = supervision.fst
    times = state_times(fst)
    length, count = supervision.frames_per_sequence, supervision.num_sequences
    if times[-1] != length * count:
        raise ExampleError(
            f"the paths of a supervision have {times[-1]} labels; expected {length} for each of "
            f"{count} sequences"
        )
    at_seams = np.bincount(times, minlength=length * count + 1)[length:-1:length]
    if bool((at_seams > 1).any()):
        length, count = length * count, 1
    sources, destinations = fst.sources, fst.destinations.astype(np.int64)
    time = times[sources]
    row = time % supervision.frames_per_sequence * supervision.num_sequences
    row += time // supervision.frames_per_sequence
    arrival = time + 1
    ends = fst.num_states + arrival // length - 1
    is_end = (arrival % length == 0) & (arrival < length * count)
    frames = _arcs_by_frame(
        time % length,
        length,
        places=row * supervision.label_dim + fst.labels - 1,
        costs=fst.costs,
        sources=sources,
        destinations=np.where(is_end, ends, destinations),
    )
    groups = [np.array([fst.num_states + number]) for number in range(count - 1)]
    groups.append(np.flatnonzero(np.isfinite(fst.final_costs)))
    return _Plan(
        frames,
        np.flatnonzero((times % length == 0) & (times < length * count)),
        np.concatenate((fst.final_costs.astype(np.float64), np.zeros(count - 1))),
        groups,
    )


def _end_to_end(supervision: ChainSupervision) -> _Plan:
    """Sequences with an FST each, which may have loops: all arcs in every frame."""
    fsts, count = supervision.e2e_fsts, supervision.num_sequences
    for fst in fsts:
        check_labels(fst)
    first = np.cumsum([0] + [fst.num_states for fst in fsts])
    rows = np.repeat(np.arange(count), [fst.num_arcs for fst in fsts])
    (side_by_side,) = _arcs_by_frame(
        np.zeros_like(rows),
        1,
        places=rows * supervision.label_dim + np.concatenate([fst.labels for fst in fsts]) - 1,
        costs=np.concatenate([fst.costs for fst in fsts]),
        sources=np.concatenate([fst.sources + first[n] for n, fst in enumerate(fsts)]),
        destinations=np.concatenate([fst.destinations + first[n] for n, fst in enumerate(fsts)]),
    )
    step = count * supervision.label_dim
    return _Plan(
        [
            side_by_side._replace(places=side_by_side.places + frame * step)
            for frame in range(supervision.frames_per_sequence)
        ],
        np.array([fst.start + first[n] for n, fst in enumerate(fsts)]),
        np.concatenate([fst.final_costs for fst in fsts]).astype(np.float64),
        [np.arange(begin, end) for begin, end in itertools.pairwise(first.tolist())],
    )
