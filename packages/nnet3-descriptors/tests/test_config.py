"""Config text: the networks that it builds or extends, and its error messages."""

import numpy as np
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    OutputNode,
    node_config_lines,
    parse_config,
    parse_descriptor,
)

CONFIG = """\
# a network with all kinds of nodes
input-node name=input dim=4
component name=affine type=AffineComponent input-dim=8 output-dim=5
component-node name=a component=affine input=Append(low, Offset(low, -1), b)   # b comes later
dim-range-node name=low input-node=input dim-offset=1 dim=3

component name='relu' type="RectifiedLinearComponent" dim=2
component-node name=b component=relu input=Offset(c, -1)
dim-range-node name=c input-node=a dim-offset=0 dim=2
output-node name=output input=a objective=quadratic
output-node name=output2 input=b
"""

NODE_LINES = (
    "input-node name=input dim=4",
    "component-node name=a component=affine input=Append(low, Offset(low, -1), b)",
    "dim-range-node name=low input-node=input dim-offset=1 dim=3",
    "component-node name=b component=relu input=Offset(c, -1)",
    "dim-range-node name=c input-node=a dim-offset=0 dim=2",
    "output-node name=output input=a objective=quadratic",
    "output-node name=output2 input=b objective=linear",
)


def test_builds_nodes_and_components() -> None:
    """Nodes have the order of the lines; they may refer to later nodes."""
    nnet = parse_config(CONFIG)

    assert nnet.component_names == ("affine", "relu")
    assert nnet.nodes == (
        InputNode(name="input", dim=4),
        ComponentInputNode(
            name="a_input", descriptor=parse_descriptor("Append(low, Offset(low, -1), b)")
        ),
        ComponentNode(name="a", component="affine"),
        DimRangeNode(name="low", source="input", dim_offset=1, dim=3),
        ComponentInputNode(name="b_input", descriptor=parse_descriptor("Offset(c, -1)")),
        ComponentNode(name="b", component="relu"),
        DimRangeNode(name="c", source="a", dim_offset=0, dim=2),
        OutputNode(name="output", descriptor=parse_descriptor("a"), objective="quadratic"),
        OutputNode(name="output2", descriptor=parse_descriptor("b")),
    )


def test_the_generator_decides_the_parameters() -> None:
    """Parameters are the same each time, or those of a given generator."""

    def params(rng: np.random.Generator | None) -> np.ndarray:
        return parse_config(CONFIG, rng=rng).state_dict()["affine.linear_params"]

    assert (params(None) == params(None)).all()
    assert (params(np.random.default_rng(5)) == params(np.random.default_rng(5))).all()
    assert (params(np.random.default_rng(5)) != params(None)).any()


def test_lines_may_end_as_on_windows() -> None:
    """A carriage return at the end of a line is not part of a value."""
    assert parse_config(CONFIG.replace("\n", "\r\n")) == parse_config(CONFIG)


def test_adds_and_replaces() -> None:
    """A component is replaced in its place; a node is removed, and defined at the end."""
    base = parse_config(CONFIG)

    nnet = parse_config(
        "component name=affine type=LinearComponent input-dim=8 output-dim=6\n"
        "component name=tanh type=TanhComponent dim=6\n"
        "component-node name=d component=tanh input=a\n"
        "output-node name=output input=d\n",
        base,
    )

    assert nnet.component_names == ("affine", "relu", "tanh")
    assert [component.type for component in nnet.components] == [
        "LinearComponent",
        "RectifiedLinearComponent",
        "TanhComponent",
    ]
    assert nnet.component("relu") is base.component("relu")
    assert [node.name for node in nnet.nodes] == [
        *("input", "a_input", "a", "low", "b_input", "b", "c", "output2"),
        *("d_input", "d", "output"),
    ]


def test_replaces_a_component_node_with_its_input() -> None:
    """The component-input node goes with the node that is defined again."""
    nnet = parse_config("component-node name=b component=relu input=c", parse_config(CONFIG))

    assert nnet.node_names[-2:] == ("b_input", "b")
    assert len(nnet.nodes) == len(parse_config(CONFIG).nodes)


def test_prints_nodes_as_kaldi() -> None:
    """Lines have the keys in Kaldi's order, and no component-input nodes.

    Nodes have the order of the lines; they may refer to later nodes.
    """
    nnet = parse_config(CONFIG)

    assert node_config_lines(nnet) == NODE_LINES
    assert nnet.component_names == ("affine", "relu")


def test_prints_dimensions_for_people() -> None:
    """With dims, component and output nodes show theirs."""
    lines = node_config_lines(parse_config(CONFIG), with_dims=True)

    assert lines[1] == NODE_LINES[1] + " input-dim=8 output-dim=5"
    assert lines[5] == "output-node name=output input=a dim=5 objective=quadratic"
    assert lines[2] == NODE_LINES[2]
