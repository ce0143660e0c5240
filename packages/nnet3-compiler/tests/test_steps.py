"""Epochs, phases and steps."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnet3_compiler import CompilationError, Compiler, compile_computation
from nnet3_compiler.steps.network import compute_epochs
from nnet3_computation import ComputationRequest
from nnet3_descriptors import ComponentNode, DimRangeNode, Nnet, parse_config
from nnet3_graph import build_computation_graph
from random_networks import examples, networks, requests
from small_networks import has_circle, stacked


class TestEpochs:
    """The order of nodes."""

    def test_independent_branches(self) -> None:
        """Of independent branches, the one that a search finds last is computed first."""
        nnet = parse_config(
            stacked(2, "first NoOp dim=2", "second NoOp dim=2 input=input").replace(
                "output input=second", "output input=Sum(first, second)"
            )
        )
        epochs = compute_epochs(nnet)
        order = [nnet.node_names[node] for node in np.argsort(epochs.of_node)]

        names = ["input", "second_input", "second", "first_input", "first", "output"]
        assert order == names

    def test_epochs_of_a_recurrence(self) -> None:
        """Nodes of a recurrence share an epoch, after their inputs and before their users."""
        past = "Sum(a, IfDefined(Offset(b, -1)))"
        nnet = parse_config(stacked(2, "a NoOp dim=2", f"b NoOp dim=2 input={past}"))
        epochs = compute_epochs(nnet)
        of = dict(zip(nnet.node_names, epochs.of_node.tolist(), strict=True))

        assert of["input"] < of["a_input"] < of["a"] < of["b_input"] == of["b"] < of["output"]
        assert epochs.is_recurrent.sum() == 2


class TestStepRules:
    """Rules for the steps of any computation."""

    @settings(max_examples=settings.default.max_examples, suppress_health_check=list(HealthCheck))
    @given(examples())
    def test_rules(self, example: tuple[Nnet, ComputationRequest]) -> None:
        """Rules (a), (b) and (c) hold; dependencies are in earlier steps; no cindex is repeated."""
        self.check(*example)

    def check(self, nnet: Nnet, request: ComputationRequest) -> None:
        """Checks the rules; padding rows of a component's input or output have no cindex."""
        graph = build_computation_graph(nnet, request)
        steps = Compiler(nnet, request).make_steps()
        step_of = {}
        for step, node in enumerate(steps.node.tolist()):
            rows = steps.rows_of(step)
            for cindex_id in steps.cindex_ids[rows].tolist():
                if cindex_id >= 0:
                    step_of.setdefault(cindex_id, []).append(step)
            definition = nnet.nodes[node]
            if isinstance(definition, ComponentNode) and not steps.is_given[step]:
                assert steps.node[step - 1] == node - 1
            if isinstance(definition, DimRangeNode):
                source = int(steps.source[step])
                assert source < step
                assert nnet.nodes[int(steps.node[source])].name == definition.source
                source_rows = steps.indexes[steps.rows_of(source)]
                assert np.array_equal(source_rows, steps.indexes[rows])
        self.check_inputs_and_outputs(nnet, request, steps)
        splits, dependencies = graph.dependency_splits, graph.dependencies
        for cindex_id in range(graph.num_cindexes):
            assert len(step_of[cindex_id]) == 1 or nnet.node_names[
                graph.cindexes[cindex_id, 0]
            ].endswith("_input")
            used = dependencies[splits[cindex_id] : splits[cindex_id + 1]].tolist()
            for own in step_of[cindex_id]:
                assert all(min(step_of[other]) < own for other in used)

    @staticmethod
    def check_inputs_and_outputs(nnet, request, steps) -> None:
        """Each input and output of the request is one step, with its rows in order."""
        for io, is_given in [(io, True) for io in request.inputs] + [
            (io, False) for io in request.outputs
        ]:
            node = nnet.node_index(io.name)
            own = np.flatnonzero((steps.node == node) & (steps.is_given == is_given))
            assert len(own) == 1
            assert np.array_equal(steps.indexes[steps.rows_of(int(own[0]))], io.indexes)

    @settings(
        max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def test_circles_are_refused(self, data: st.DataObject) -> None:
        """A request is refused if and only if some cindex depends on itself."""
        nnet = data.draw(networks())
        request = data.draw(requests(nnet, False))
        try:
            graph = build_computation_graph(nnet, request)
        except ValueError:
            return
        if has_circle(graph):
            with pytest.raises(CompilationError, match="depends on itself"):
                compile_computation(nnet, request)
        else:
            compile_computation(nnet, request)
