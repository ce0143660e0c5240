"""The results of a case, computed by other requests for the same rows.

What the compiler makes of a request is part of the definition. These requests have other rows at a
time, so the compiler orders, pads and splits them differently, and the results are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from judged_cases import LOOP, SEGMENTS, WHOLE, Case
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Component
from nnet3_descriptors.components import BatchNormComponent
from nnet3_graph import ComputationGraph, build_computation_graph
from nnet3_runtime_reference import ReferenceComputer

Results = dict[str, np.ndarray]

EVERY = {WHOLE: 5, LOOP: 3, SEGMENTS: 1}
"""One case in so many of each form is computed by other requests, which take long."""

NOT_ADDITIVE = frozenset({"BackpropTruncation", "ClipGradient", "self-repair"})
"""Component types, and a feature, with which the derivative of a sum is no sum of derivatives."""


def results_of_other_requests(case: Case) -> Results:
    """Results that must be the same: of one request for all segments, or of parts of a request.

    There are none for most cases, and if rows that are computed together change each other.
    """
    is_chosen = case.seed % EVERY[case.form] == 0
    if not is_chosen or case.is_random or any(map(_normalizes_a_minibatch, case.nnet.components)):
        return {}
    return results_of_parts(case) if case.form == WHOLE else outputs_of_one_request(case)


def outputs_of_one_request(case: Case) -> Results:
    """The outputs of each round, from the definition of one request for all rounds.

    Returns:
        None of them if a later input makes a row read others.
    """
    nnet = case.nnet
    request = joined(case.segments)
    graphs: list[ComputationGraph] = []
    for segment in case.segments:
        graphs.append(build_computation_graph(nnet, segment, graphs[-1] if graphs else None))
    whole = build_computation_graph(nnet, request)
    if not np.array_equal(_reads([whole]), _reads(graphs)):
        return {}
    rounds = case.inputs()
    inputs = {io.name: np.concatenate([each[io.name] for each in rounds]) for io in request.inputs}
    found = ReferenceComputer(nnet, compile_computation(nnet, request)).forward(inputs)
    results: Results = {}
    for name, array in found.items():
        counts = [_rows_of(segment, name) for segment in case.segments]
        parts = np.split(array, np.cumsum(counts)[:-1])
        results |= {f"output {name} of round {number}": part for number, part in enumerate(parts)}
    return results


def results_of_parts(case: Case) -> Results:
    """Outputs, and sums of derivatives, of two requests for some rows of the outputs each."""
    nnet, request = case.nnet, case.request
    results: Results = {}
    is_additive = not case.kinds & NOT_ADDITIVE and not case.has_limits
    rng = np.random.default_rng([case.seed, 3])
    share = rng.choice([0.1, 0.5])
    in_first = {io.name: rng.random(len(io.indexes)) < share for io in request.outputs}
    inputs, derivs = case.inputs()[0], case.output_derivs()
    for rows in (in_first, {name: ~first for name, first in in_first.items()}):
        part = _part(request, rows, has_derivs=is_additive)
        if part is None:
            continue
        options = CompilerOptions(shortcut=case.shortcut)
        computer = ReferenceComputer(nnet, compile_computation(nnet, part, options))
        for name, array in computer.forward(inputs).items():
            shape = (len(rows[name]), array.shape[1])
            results.setdefault(f"output {name} of round 0", np.zeros(shape))[rows[name]] = array
        given = {io.name: derivs[io.name][rows[io.name]] for io in part.outputs if io.has_deriv}
        if not given:
            continue
        for name, array in case.derivatives_of(computer, given).items():
            results[name] = results[name] + array if name in results else array
    return results


def _part(
    request: ComputationRequest, rows: dict[str, np.ndarray], *, has_derivs: bool
) -> ComputationRequest | None:
    """The request for some rows of the outputs, (rows,) bool each; None if there are none."""
    outputs = [
        attrs.evolve(io, indexes=io.indexes[rows[io.name]], has_deriv=io.has_deriv and has_derivs)
        for io in request.outputs
        if rows[io.name].any()
    ]
    if not outputs:
        return None
    has_derivs = any(io.has_deriv for io in outputs)
    return attrs.evolve(
        request,
        inputs=[attrs.evolve(io, has_deriv=io.has_deriv and has_derivs) for io in request.inputs],
        outputs=outputs,
        need_model_derivative=request.need_model_derivative and has_derivs,
        store_component_stats=False,
    )


def joined(requests: Sequence[ComputationRequest]) -> ComputationRequest:
    """One request for the rows of all of them, for each node those of one behind the other's."""

    def rows(ios: Iterable[Sequence[IoSpecification]]) -> list[IoSpecification]:
        return [
            IoSpecification(
                name=parts[0].name, indexes=np.concatenate([io.indexes for io in parts])
            )
            for parts in zip(*ios, strict=True)
        ]

    return ComputationRequest(
        inputs=rows(each.inputs for each in requests),
        outputs=rows(each.outputs for each in requests),
    )


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
