"""The outputs of segments, computed as those of one request for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from judged_cases import Case
from nnet3_compiler import compile_computation
from nnet3_descriptors import Component
from nnet3_descriptors.components import BatchNormComponent
from nnet3_graph import (
    ComputationGraph,
    ComputationRequest,
    IoSpecification,
    NotComputableError,
    build_computation_graph,
)
from nnet3_runtime_reference import ReferenceComputer

Results = dict[str, np.ndarray]


def outputs_of_one_request(case: Case) -> Results | None:
    """The outputs of each round, from the definition of one request for all rounds.

    Returns:
        None if the definition need not give the same: where a later input makes a row read others,
            or where rows that are computed together change each other.
    """
    nnet = case.nnet
    if case.is_random or any(map(_normalizes_a_minibatch, nnet.components)):
        return None
    request = ComputationRequest(
        inputs=_joined([each.inputs for each in case.segments]),
        outputs=_joined([each.outputs for each in case.segments]),
    )
    graphs: list[ComputationGraph] = []
    for segment in case.segments:
        graphs.append(build_computation_graph(nnet, segment, graphs[-1] if graphs else None))
    try:
        whole = build_computation_graph(nnet, request)
    except NotComputableError:  # a row that was given later belongs to another recurrence
        return None
    if not np.array_equal(_reads([whole]), _reads(graphs)):
        return None
    rounds = case.inputs()
    inputs = {io.name: np.concatenate([each[io.name] for each in rounds]) for io in request.inputs}
    found = ReferenceComputer(nnet, compile_computation(nnet, request)).forward(inputs)
    results: Results = {}
    for name, array in found.items():
        counts = [_rows_of(segment, name) for segment in case.segments]
        parts = np.split(array, np.cumsum(counts)[:-1])
        results |= {f"output {name} of round {number}": part for number, part in enumerate(parts)}
    return results


def _joined(ios: Sequence[Sequence[IoSpecification]]) -> list[IoSpecification]:
    """The rows of all segments together, for each node."""
    return [
        IoSpecification(name=parts[0].name, indexes=np.concatenate([io.indexes for io in parts]))
        for parts in zip(*ios, strict=True)
    ]


def _reads(graphs: Sequence[ComputationGraph]) -> np.ndarray:
    """Which rows read which others: (reads, 8), sorted."""
    cindexes = np.concatenate([graph.cindexes for graph in graphs])
    parts = []
    for graph in graphs:
        readers = np.repeat(graph.cindexes, np.diff(graph.dependency_splits), axis=0)
        parts.append(np.hstack([readers, cindexes[graph.dependencies]]))
    return np.unique(np.concatenate(parts), axis=0)


def _rows_of(request: ComputationRequest, name: str) -> int:
    return next(len(io.indexes) for io in request.outputs if io.name == name)


def _normalizes_a_minibatch(component: Component) -> bool:
    """Whether the rows of a step change each other."""
    parts: Any = getattr(component, "components", ())
    return (isinstance(component, BatchNormComponent) and not component.test_mode) or any(
        map(_normalizes_a_minibatch, parts)
    )
