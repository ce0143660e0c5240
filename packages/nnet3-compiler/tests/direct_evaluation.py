"""Evaluates a network one cindex at a time, straight from the meaning of its descriptors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    Nnet,
    OutputNode,
)
from nnet3_descriptors.components import (
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
    TdnnComponent,
)
from nnet3_descriptors.descriptors import Const, Failover, IfDefined, Sum, SumDescriptor
from nnet3_graph import ComputationGraph, ComputationRequest
from running_computations import linear_weight, pooled, time_weights

Cindex = tuple[int, int, int, int]


class Evaluation:
    """The values of the cindexes of a graph."""

    def __init__(
        self,
        nnet: Nnet,
        graph: ComputationGraph,
        request: ComputationRequest,
        inputs: Mapping[str, np.ndarray],
    ) -> None:
        self.nnet = nnet
        cindexes = [tuple(cindex) for cindex in graph.cindexes.tolist()]
        self.available = set(cindexes)
        splits = graph.dependency_splits.tolist()
        self.used = {
            cindex: [cindexes[each] for each in graph.dependencies[splits[row] : splits[row + 1]]]
            for row, cindex in enumerate(cindexes)
        }
        self.values: dict[Cindex, np.ndarray] = {}
        for io in request.inputs:
            node = nnet.node_index(io.name)
            for index, row in zip(io.indexes.tolist(), inputs[io.name], strict=True):
                self.values[(node, *index)] = row.astype(np.float64)

    def output(self, name: str, indexes: np.ndarray) -> np.ndarray:
        """The rows of an output."""
        node = self.nnet.node_index(name)
        return np.array([self.value((node, *index)) for index in indexes.tolist()])

    def value(self, cindex: Cindex) -> np.ndarray:
        """The value of a cindex."""
        if cindex not in self.values:
            self.values[cindex] = self._compute(cindex)
        return self.values[cindex]

    def _compute(self, cindex: Cindex) -> np.ndarray:
        number, n, t, x = cindex
        node = self.nnet.nodes[number]
        match node:
            case DimRangeNode():
                source = self.value((self.nnet.node_index(node.source), n, t, x))
                return source[node.dim_offset : node.dim_offset + node.dim]
            case ComponentInputNode() | OutputNode():
                parts = [self._sum(part, (n, t, x)) for part in node.descriptor.parts]
                assert all(part is not None for part in parts)
                return np.concatenate(parts)
            case ComponentNode():
                component = self.nnet.component_of(node)
                if isinstance(
                    component, StatisticsExtractionComponent | StatisticsPoolingComponent
                ):
                    rows = [self.value(used) for used in self.used[cindex]]
                    return pooled(component, np.array(rows))
                if isinstance(component, TdnnComponent):
                    return sum(
                        weight @ self.value((number - 1, n, t + offset, x))
                        for offset, weight in zip(
                            component.time_offsets, time_weights(component), strict=True
                        )
                    )
                return linear_weight(component) @ self.value((number - 1, n, t, x))
        raise AssertionError(f"{node.name} has no input at {(n, t, x)}")

    def _sum(self, descriptor: SumDescriptor, index: tuple[int, int, int]) -> np.ndarray | None:
        """The value of a sum descriptor; None if it can't be computed."""
        match descriptor:
            case Const():
                return np.full(descriptor.num_columns, descriptor.value)
            case Sum():
                first, second = (self._sum(term, index) for term in descriptor.operands)
                return None if first is None or second is None else first + second
            case Failover():
                first = self._sum(descriptor.first, index)
                return self._sum(descriptor.second, index) if first is None else first
            case IfDefined():
                value = self._sum(descriptor.source, index)
                dim = descriptor.dim(self.nnet.node_dim)
                return np.zeros(dim) if value is None else value
        rows = np.array([index], np.int32)
        cindex = tuple(descriptor.map_to_input(rows, self.nnet.node_indexes)[0].tolist())
        if cindex not in self.available:
            return None
        return float(np.ravel(descriptor.scale(rows))[0]) * self.value(cindex)
