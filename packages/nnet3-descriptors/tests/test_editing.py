"""Edit directives and their effects on a network."""

import numpy as np
import pytest
from nnet3_descriptors import Nnet, node_config_lines, parse_config
from nnet3_descriptors.editing import (
    apply_edits,
    apply_svd,
    reduce_rank,
    remove_orphan_nodes,
    remove_orphans,
    rename_node,
    set_learning_rate,
)
from nnet3_descriptors.editing.structure import matches

NNET = parse_config(
    """
    input-node name=input dim=6
    input-node name=unused dim=2
    component name=tdnn1.affine type=NaturalGradientAffineComponent input-dim=12 output-dim=8
    component name=tdnn1.relu type=RectifiedLinearComponent dim=8
    component name=tdnn2.affine type=AffineComponent input-dim=4 output-dim=5 max-change=0.5
    component name=drop type=DropoutComponent dim=8 dropout-proportion=0.2
    component name=side type=LinearComponent input-dim=8 output-dim=3
    component name=left-over type=TanhComponent dim=3
    component-node name=tdnn1.affine component=tdnn1.affine input=Append(input, Offset(input, 1))
    component-node name=tdnn1.relu component=tdnn1.relu input=tdnn1.affine
    component-node name=drop component=drop input=tdnn1.relu
    dim-range-node name=part input-node=drop dim-offset=2 dim=4
    component-node name=tdnn2.affine component=tdnn2.affine input=Sum(part, Scale(0.5, part))
    component-node name=side component=side input=tdnn1.relu
    output-node name=output input=tdnn2.affine
    output-node name=output-side input=side
    """
)


def edited(directives: str) -> Nnet:
    """Returns the network after some directives."""
    return apply_edits(NNET, directives)


def test_semicolons_separate_directives() -> None:
    """A semicolon separates directives as a line break does, but not in quotes or a comment."""
    rename = "rename-node old-name=output-side new-name=output"
    several = f"remove-output-nodes name='output' ;{rename}; remove-orphans # a; b"

    assert edited(several) == edited(f"remove-output-nodes name=output\n{rename}\nremove-orphans")


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("tdnn1.affine", "*", True),
        ("tdnn1.affine", "tdnn1.affine", True),
        ("tdnn1.affine", "tdnn1", False),
        ("tdnn1.affine", "tdnn*", True),
        ("tdnn1.affine", "*affine", True),
        ("tdnn1.affine", "t*1*e", True),
        ("tdnn1.affine", "t*2*e", False),
        ("tdnn1.affine", "t*.*.*e", False),
        ("aba", "ab*ba", False),
        ("abba", "ab*ba", True),
        ("a.b", "a?b", False),
        ("", "*", True),
        ("", "", True),
        ("a", "", False),
    ],
)
def test_star_stands_for_anything(name: str, pattern: str, expected: bool) -> None:
    """Only the star is special; it can match nothing."""
    assert matches(name, pattern) is expected


def test_many_stars_are_quick() -> None:
    """A pattern with many stars does not take exponential time."""
    assert not matches("a" * 1000, "a*" * 300 + "b")


def test_set_learning_rate() -> None:
    """The new rate is multiplied by the factor of each component."""
    nnet = edited(
        "set-learning-rate-factor name=tdnn2.* learning-rate-factor=0.5\n"
        "set-learning-rate learning-rate=0.01\n"
        "set-learning-rate name=side learning-rate=0.02  # as the last\n"
    )

    rates = [
        nnet.component(name).learning_rate for name in ("tdnn1.affine", "tdnn2.affine", "side")
    ]
    assert rates == [float(np.float32(rate)) for rate in (0.01, 0.005, 0.02)]
    assert nnet.component("tdnn1.relu") is NNET.component("tdnn1.relu")


def test_learning_rates_within_a_composite() -> None:
    """The rate is set for the parts of a composite, each with its own factor."""
    composite = parse_config(
        "input-node name=input dim=3\n"
        "component name=c type=CompositeComponent num-components=2 "
        "component1='type=AffineComponent input-dim=3 output-dim=3 learning-rate-factor=2' "
        "component2='type=TanhComponent dim=3'\n"
        "component-node name=c component=c input=input\n"
        "output-node name=output input=c"
    )

    nnet = set_learning_rate(composite, 0.25)

    assert nnet.component("c").learning_rate == 0.25
    assert nnet.component("c").components[0].learning_rate == 0.5


def test_set_dropout_proportion() -> None:
    """Only dropout components change."""
    nnet = edited("set-dropout-proportion name=d* proportion=0.5")

    assert nnet.component("drop").dropout_proportion == 0.5
    assert edited("set-dropout-proportion name=x* proportion=0.5") == NNET


def test_convert_to_fixed_affine() -> None:
    """Affine components keep their values but are no longer trained; linear ones stay."""
    nnet = edited("convert-to-fixed-affine")

    assert [component.type for component in nnet.components] == [
        *("FixedAffineComponent", "RectifiedLinearComponent", "FixedAffineComponent"),
        *("DropoutComponent", "LinearComponent", "TanhComponent"),
    ]
    before, after = NNET.state_dict(), nnet.state_dict()
    assert all((before[name] == after[name]).all() for name in before)


def test_remove_orphans() -> None:
    """Unused components are removed; inputs only on request."""
    assert remove_orphans(NNET).component_names == NNET.component_names[:-1]
    assert "unused" in remove_orphan_nodes(NNET).node_names
    assert "unused" not in edited("remove-orphan-nodes remove-orphan-inputs=true").node_names
    assert edited("remove-orphan-components").nodes == NNET.nodes


def test_remove_output_nodes() -> None:
    """Nodes that only a removed output needed become orphans."""
    nnet = edited("remove-output-nodes name=*-side\nremove-orphans")

    assert "side" not in nnet.node_names
    assert "side_input" not in nnet.node_names
    assert "side" not in nnet.component_names
    assert [node.name for node in nnet.output_nodes] == ["output"]


@pytest.mark.parametrize(
    ("old_name", "lines"),
    [
        ("drop", ["component-node name=new component=drop", "input-node=new dim-offset=2"]),
        ("part", ["dim-range-node name=new", "input=Sum(new, Scale(0.5, new))"]),
        ("input", ["input-node name=new dim=6", "input=Append(new, Offset(new, 1))"]),
        ("output", ["output-node name=new input=tdnn2.affine"]),
    ],
)
def test_rename_node(old_name: str, lines: list[str]) -> None:
    """The node and all references to it are renamed; the rest of the text stays."""
    nnet = edited(f"rename-node old-name={old_name} new-name=new")

    text = "\n".join(node_config_lines(nnet))
    assert all(line in text for line in lines)
    assert rename_node(nnet, "new", old_name) == NNET


def test_reduce_rank() -> None:
    """The matrix becomes the nearest matrix of the requested rank; the bias stays."""
    nnet = reduce_rank(NNET, "*", 3)

    before, after = NNET.state_dict(), nnet.state_dict()
    matrix = after["tdnn1.affine.linear_params"]
    assert np.linalg.matrix_rank(matrix, tol=1e-5) == 3
    singular_values = np.linalg.svd(before["tdnn1.affine.linear_params"], compute_uv=False)
    distance = np.linalg.norm(matrix - before["tdnn1.affine.linear_params"])
    assert distance == pytest.approx(np.linalg.norm(singular_values[3:]), rel=1e-4)
    assert (after["side.params"] == before["side.params"]).all()
    assert (after["tdnn1.affine.bias_params"] == before["tdnn1.affine.bias_params"]).all()


def test_reduce_rank_leaves_small_matrices() -> None:
    """A matrix with no more rows or columns than the rank stays."""
    assert reduce_rank(NNET, "tdnn2.*", 4) == NNET


def test_apply_svd_splits_components_and_nodes() -> None:
    """Two components and nodes replace one; references go to the second."""
    nnet = apply_svd(NNET, "*", bottleneck_dim=3, shrinkage_threshold=0.9)

    lines = node_config_lines(nnet)
    assert lines[2:5] == (
        "component-node name=tdnn1.affine_a component=tdnn1.affine_a "
        "input=Append(input, Offset(input, 1))",
        "component-node name=tdnn1.affine_b component=tdnn1.affine_b input=tdnn1.affine_a",
        "component-node name=tdnn1.relu component=tdnn1.relu input=tdnn1.affine_b",
    )
    assert nnet.component_names[-2:] == ("tdnn1.affine_a", "tdnn1.affine_b")
    assert "tdnn2.affine" in nnet.component_names


def test_apply_svd_keeps_the_settings_of_training() -> None:
    """Learning rate, factor, max-change and regularization go to both components."""
    nnet = apply_svd(NNET, "tdnn2.affine", bottleneck_dim=2)

    assert nnet.component("tdnn2.affine_a").max_change == 0.5
    assert nnet.component("tdnn2.affine_b").max_change == 0.5


@pytest.mark.parametrize(("threshold", "rank"), [(0.5, 1), (0.75, 2), (0.9, 3), (0.999, 4)])
def test_apply_svd_keeps_so_much_energy(threshold: float, rank: int) -> None:
    """The fewest singular values are kept whose squares reach the requested share."""
    params = np.zeros((8, 12), dtype=np.float32)
    np.fill_diagonal(params, np.sqrt([8, 4, 2, 1, 0.01, 0.001, 0, 0]))
    nnet = NNET.with_state_dict({"tdnn1.affine.linear_params": params})

    nnet = apply_svd(nnet, "tdnn1.affine", energy_threshold=threshold)

    assert nnet.component("tdnn1.affine_a").output_dim == rank
