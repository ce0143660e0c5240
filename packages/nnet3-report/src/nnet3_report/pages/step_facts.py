"""The steps of a request: rows that are computed together, and the steps that they read."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_compiler import Compiler
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import NO_TIME, T
from nnet3_graph import ComputationGraph

Ids = npt.NDArray[np.int64]


@attrs.frozen(kw_only=True)
class Step:
    """A matrix of rows of one node that are computed together.

    Attributes:
        node: The name of the node.
        rows: Number of rows, with those that only pad.
        cols: Number of columns.
        frames: The frames of its rows, ascending, each once.
        reads: The numbers of the steps that it reads, from 0, ascending.
    """

    node: str
    rows: int
    cols: int
    frames: tuple[int, ...]
    reads: tuple[int, ...]


@attrs.frozen(kw_only=True, eq=False)
class StepFacts:
    """The steps of a request that have rows, in the order of computation.

    Attributes:
        steps: The steps.
        rows_read: (reads, 3) int64: for each row of a step that another step reads, the step that
            reads, the step that is read, and the number of the row among all rows of the graph.
    """

    steps: tuple[Step, ...]
    rows_read: Ids


def step_facts(nnet: Nnet, request: ComputationRequest, graph: ComputationGraph) -> StepFacts:
    """Finds the steps of a request, and the steps that each of them reads.

    Args:
        nnet: The network.
        request: The request.
        graph: Its computation graph.

    Raises:
        CompilationError: The recurrence of the network has no order of computation.
    """
    steps = Compiler(nnet, request, graph).make_steps()
    kept = np.flatnonzero(steps.count)
    number_of = np.full(len(steps) + 1, -1)  # the last for cindexes that no step has
    number_of[kept] = np.arange(len(kept))
    of_cindex = number_of[steps.step_of_cindex]
    readers = np.repeat(np.arange(graph.num_cindexes), np.diff(graph.dependency_splits))
    found = np.stack(
        [of_cindex[readers], of_cindex[graph.dependencies], graph.dependencies.astype(np.int64)]
    )
    rows_read = _distinct(found[:, (found[0] >= 0) & (found[1] >= 0) & (found[0] != found[1])])
    pairs = rows_read[:, :2]
    pairs = pairs[_begins(pairs)]
    ends = np.searchsorted(pairs[:, 0], np.arange(len(kept) + 1))
    names = nnet.node_names
    described = []
    for number, step in enumerate(kept.tolist()):
        name, times = names[steps.node[step]], steps.indexes[steps.rows_of(step), T]
        described.append(
            Step(
                node=name,
                rows=int(steps.count[step]),
                cols=nnet.node_dim(name),
                frames=tuple(np.unique(times[times != NO_TIME]).tolist()),
                reads=tuple(pairs[ends[number] : ends[number + 1], 1].tolist()),
            )
        )
    return StepFacts(steps=tuple(described), rows_read=rows_read)


def _distinct(columns: Ids) -> Ids:
    """The distinct columns of a (3, n) array, sorted, as (rows, 3)."""
    order = np.lexsort(columns[::-1])
    rows: Ids = columns[:, order].T
    distinct: Ids = rows[_begins(rows)]
    return distinct


def _begins(rows: Ids) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before."""
    differs = (rows[1:] != rows[:-1]).any(axis=1)
    return np.concatenate([[True], differs])[: len(rows)]
