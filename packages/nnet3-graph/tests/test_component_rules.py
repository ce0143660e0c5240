"""The closed forms of component rules agree with the index rules of the types."""

from unittest import mock

import pytest
from graph_strategies import request_of
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.components import TdnnComponent
from nnet3_descriptors.components.index_rules import AtOffsets
from nnet3_descriptors.indexes import as_indexes
from nnet3_graph import ComputationGraphBuilder
from nnet3_graph.nodes import component_rule
from nnet3_graph.rules import NEVER, All, Asked, ByTime, Optional, Shift
from small_networks import network, stacked

INDEX_SETS = st.sets(
    st.tuples(st.integers(0, 2), st.integers(-9, 9), st.integers(0, 1)), min_size=1, max_size=40
)


def build(nnet, request):
    """The computable outputs, and the cindexes and dependencies if all are computable."""
    builder = ComputationGraphBuilder(nnet, request)
    builder.compute()
    if not builder.all_outputs_are_computable():
        return None
    builder.prune()
    graph = builder.graph
    arrays = (graph.cindexes, graph.is_input, graph.dependency_splits, graph.dependencies)
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize(
    ("config", "input_dim"),
    [
        ("Tdnn input-dim=1 output-dim=1 time-offsets=2,-1", 1),
        ("TimeHeightConvolution num-filters-in=1 num-filters-out=1 height-in=1 "
         "height-out=1 height-offsets=0 time-offsets=-3,0,1 required-time-offsets=0", 1),
        ("RestrictedAttention key-dim=1 value-dim=1 num-left-inputs=2 "
         "num-right-inputs=1 time-stride=2 num-left-inputs-required=0", 7),
        ("StatisticsExtraction input-dim=1 input-period=2 output-period=6", 1),
        ("StatisticsExtraction input-dim=1", 1),
        ("StatisticsPooling input-dim=3 left-context=4 right-context=2 "
         "input-period=2", 3),
        ("StatisticsPooling input-dim=3 left-context=0 right-context=3", 3),
        ("Constant output-dim=2", 2),
        ("NoOp dim=1", 1),
    ],
)  # fmt: skip
@given(st.data(), INDEX_SETS, INDEX_SETS)
def test_closed_form(config, input_dim, data, inputs, outputs):
    """A graph is the same by a component's closed form and by its answers about rows."""
    nnet = network(stacked(input_dim, f"c {config}"))
    if data.draw(st.booleans()):  # otherwise all outputs are hardly ever computable
        _, wanted = nnet.component("c").input_dependencies(as_indexes(sorted(outputs)))
        inputs = inputs | set(map(tuple, wanted.tolist()))
    request = request_of(sorted(inputs), sorted(outputs))

    with mock.patch(
        "nnet3_graph.nodes.component_rule",
        lambda component, source: Asked(source, component),
    ):
        expected = build(nnet, request)

    assert expected == build(nnet, request)


class OnlyOdd(TdnnComponent):
    """A type that inherits a closed form, but has other index rules."""

    def input_dependencies(self, output_indexes):
        """Returns nothing for even times."""
        return super().input_dependencies(output_indexes[output_indexes[:, 1] % 2 == 1])


class WithClosedForm(OnlyOdd):
    """A type with its own closed form."""

    form = (None, AtOffsets((-1, 2), optional=(2,)))

    @property
    def modulus(self):
        """Every other row is computed alike."""
        return 2

    def closed_form(self):
        """Returns the class attribute."""
        return self.form


def component_of(cls, **changes):
    """A component of a class derived from TdnnComponent."""
    tdnn = network(stacked(1, "c Tdnn input-dim=1 output-dim=1 time-offsets=-1,2")).component("c")
    return cls(**{spec.name: getattr(tdnn, spec.name) for spec in cls.FIELDS}, **changes)


def test_a_closed_form_is_that_of_the_class_that_says_it() -> None:
    """A type that overrides only the index rules does not inherit the closed form."""
    assert component_rule(component_of(TdnnComponent), 1) == All((Shift(1, -1, 0), Shift(1, 2, 0)))
    assert isinstance(component_rule(component_of(OnlyOdd), 1), Asked)
    assert component_rule(component_of(WithClosedForm), 1) == ByTime(
        (NEVER, All((Shift(1, -1, 0), Optional(Shift(1, 2, 0)))))
    )


def test_no_closed_form_for_a_configuration() -> None:
    """If closed_form returns None, the component is asked about its rows."""
    with mock.patch.object(WithClosedForm, "form", None):
        assert isinstance(component_rule(component_of(WithClosedForm), 1), Asked)


def test_types_that_are_asked() -> None:
    """Distribution over x has no closed form."""
    nnet = network(stacked(2, "c Distribute input-dim=2 output-dim=1"))

    assert isinstance(component_rule(nnet.component("c"), 1), Asked)
