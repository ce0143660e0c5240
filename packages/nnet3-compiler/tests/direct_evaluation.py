"""Evaluates a network one cindex at a time, by the definition of its descriptors.

It knows only linear components and means.
"""

from collections.abc import Mapping

import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_descriptors import ComponentInputNode, ComponentNode, DimRangeNode, Nnet, OutputNode
from nnet3_descriptors.components import LinearComponent, TdnnComponent
from nnet3_descriptors.descriptors import (
    Const,
    Failover,
    ForwardingDescriptor,
    IfDefined,
    Sum,
    SumDescriptor,
)
from nnet3_graph import ComputationGraph

Cindex = tuple[int, int, int, int]


class Evaluation:
    """The values of the cindexes of a graph, and of the graphs of further segments."""

    def __init__(
        self,
        nnet: Nnet,
        graph: ComputationGraph,
        request: ComputationRequest,
        inputs: Mapping[str, np.ndarray],
    ) -> None:
        self.nnet = nnet
        self.cindexes: list[Cindex] = []
        self.available: set[Cindex] = set()
        self.used: dict[Cindex, list[Cindex]] = {}
        self.values: dict[Cindex, np.ndarray] = {}
        self.extend(graph, request, inputs)

    def extend(
        self, graph: ComputationGraph, request: ComputationRequest, inputs: Mapping[str, np.ndarray]
    ) -> None:
        """Goes on with the next segment; what the one before did not compute is left alone."""
        own = [tuple(cindex) for cindex in graph.cindexes.tolist()]
        self.cindexes += own
        self.available.update(own)
        splits = graph.dependency_splits.tolist()
        for row, cindex in enumerate(own):
            reads = graph.dependencies[splits[row] : splits[row + 1]]
            self.used[cindex] = [self.cindexes[each] for each in reads]
        for io in request.inputs:
            node = self.nnet.node_index(io.name)
            for index, row in zip(io.indexes.tolist(), inputs[io.name], strict=True):
                self.values[(node, *index)] = row.astype(np.float64)

    def output(self, name: str, indexes: np.ndarray) -> np.ndarray:
        """The rows of an output."""
        node = self.nnet.node_index(name)
        return np.array([self.value((node, *index)) for index in indexes.tolist()])

    def value(self, cindex: Cindex) -> np.ndarray:
        """The value of a cindex, computed after all of its dependencies.

        In a recurrence, dependencies are nested more deeply than Python's calls may be.
        """
        pending = [cindex]
        while pending:
            missing = [used for used in self.used.get(pending[-1], ()) if used not in self.values]
            if missing:
                pending += missing
                continue
            computable = pending.pop()
            if computable not in self.values:
                self.values[computable] = self._compute(computable)
        return self.values[cindex]

    def _compute(self, cindex: Cindex) -> np.ndarray:
        number, n, t, x = cindex
        node = self.nnet.nodes[number]
        match node:
            case DimRangeNode():
                source = self.value((self.nnet.node_index(node.source), n, t, x))
                return source[node.dim_offset : node.dim_offset + node.dim]
            case ComponentInputNode() | OutputNode():
                parts = node.descriptor.parts
                assert all(self._is_computable(part, (n, t, x)) for part in parts)
                return np.concatenate([self._sum(part, (n, t, x)) for part in parts])
            case ComponentNode():
                return self._component(node, cindex)
        raise AssertionError(f"{node.name} has no input at {(n, t, x)}")

    def _component(self, node: ComponentNode, cindex: Cindex) -> np.ndarray:
        number, n, t, x = cindex
        component = self.nnet.component_of(node)
        match component.type:
            case "StatisticsExtractionComponent":
                rows = np.array([self.value(used) for used in self.used[cindex]])
                return np.concatenate([[len(rows)], rows.sum(axis=0)])
            case "StatisticsPoolingComponent":
                count, *sums = sum(self.value(used) for used in self.used[cindex])
                return np.array(sums) / count
            case "TdnnComponent":
                assert isinstance(component, TdnnComponent)
                terms = [self.value((number - 1, n, t + o, x)) for o in component.time_offsets]
                return component.linear_params.astype(np.float64) @ np.concatenate(terms)
        value = self.value((number - 1, n, t, x))
        is_linear = isinstance(component, LinearComponent)
        return component.params.astype(np.float64) @ value if is_linear else value

    def _is_computable(self, descriptor: SumDescriptor, index: tuple[int, int, int]) -> bool:
        match descriptor:
            case Const() | IfDefined():
                return True
            case Sum():
                return all(self._is_computable(term, index) for term in descriptor.operands)
            case Failover():
                return any(self._is_computable(term, index) for term in descriptor.operands)
        return self._source(descriptor, index) in self.available

    def _sum(self, descriptor: SumDescriptor, index: tuple[int, int, int]) -> np.ndarray:
        """The value of a computable sum descriptor."""
        match descriptor:
            case Const():
                return np.full(descriptor.num_columns, descriptor.value)
            case Sum():
                first, second = (self._sum(term, index) for term in descriptor.operands)
                return first + second
            case Failover(first, second):
                chosen = first if self._is_computable(first, index) else second
                return self._sum(chosen, index)
            case IfDefined(source):
                if self._is_computable(source, index):
                    return self._sum(source, index)
                return np.zeros(descriptor.dim(self.nnet.node_dim))
        scale = descriptor.scale(np.array([index], np.int32))
        return float(np.ravel(scale)[0]) * self.value(self._source(descriptor, index))

    def _source(self, leaf: ForwardingDescriptor, index: tuple[int, int, int]) -> Cindex:
        """The cindex that a forwarding descriptor reads."""
        rows = np.array([index], np.int32)
        return tuple(leaf.map_to_input(rows, self.nnet.node_indexes)[0].tolist())
