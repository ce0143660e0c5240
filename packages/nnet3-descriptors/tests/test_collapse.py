"""Collapsing a model: which components become one, and their names.

Outputs before and after are compared on random networks by `tests/judge_random_collapsing.py`.
"""

import io

import numpy as np
import pytest
from nnet3_descriptors import Nnet, parse_config, set_test_mode, unvectorize, write_nnet
from nnet3_descriptors.editing import CollapseOptions, collapse_model

HEAD = """
input-node name=input dim=3
component name=affine type=NaturalGradientAffineComponent input-dim=3 output-dim=4
component name=fixed type=AffineComponent input-dim=4 output-dim=4
component name=narrow type=AffineComponent input-dim=4 output-dim=2
component name=norm type=BatchNormComponent dim=4 block-dim=2 target-rms=0.5
component name=drop type=DropoutComponent dim=4 dropout-proportion=0.25
component name=general type=GeneralDropoutComponent dim=4 dropout-proportion=0.25
component name=scale type=FixedScaleComponent dim=4
component name=back type=AffineComponent input-dim=2 output-dim=4
component name=sigmoid type=SigmoidComponent dim=4
component name=conv type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 \
height-in=2 height-out=2 height-offsets=-1,0,1 time-offsets=0 required-time-offsets=0
component name=tanh type=TanhComponent dim=4
component name=wide type=AffineComponent input-dim=8 output-dim=5
component name=linear type=LinearComponent input-dim=8 output-dim=5
component name=tdnn type=TdnnComponent input-dim=4 output-dim=5 time-offsets=-1,2 use-bias=false
component-node name=affine component=affine input=input
component-node name=tanh component=tanh input=affine
"""


def network(output: str, more: str = "", **inputs: str) -> Nnet:
    """A network in test mode with random parameters and statistics.

    Args:
        output: What the output node reads.
        more: Further lines.
        **inputs: What nodes read; each has the component of its name, without a digit.
    """
    rng = np.random.default_rng(0)
    lines = [
        f"component-node name={name} component={name.rstrip('2')} input={read}"
        for name, read in inputs.items()
    ]
    lines.append(f"output-node name=output input={output}\n{more}")
    nnet = parse_config(HEAD + "\n".join(lines), rng=rng)
    nnet = unvectorize(nnet, rng.standard_normal(nnet.num_parameters))
    statistics = {"norm.stats_mean": rng.normal(size=2), "norm.stats_var": rng.random(2)}
    return set_test_mode(nnet.with_state_dict(statistics))


PAIRS = {
    "affine": ("norm.wide", {"norm": "tanh", "wide": "Append(Offset(norm, -1), norm)"}),
    "linear": (
        "norm.linear",
        {"norm": "Sum(tanh, Const(0.5, 4))", "linear": "Append(norm, Offset(norm, 3))"},
    ),
    "tdnn": ("norm.tdnn", {"norm": "Offset(tanh, 1)", "tdnn": "Offset(norm, -2)"}),
    "dropout": (
        "drop.wide drop.tdnn drop.linear",
        {
            "output": "Append(wide, tdnn, linear)",
            "drop": "tanh",
            "wide": "Append(drop, drop)",
            "tdnn": "drop",
            "linear": "Append(drop, Offset(drop, 1))",
        },
    ),
    "general dropout": ("tdnn", {"general": "tanh", "tdnn": "Offset(general, 1)"}),
    "chain": (
        "affine.fixed.wide",
        {"fixed": "Offset(affine, -1)", "wide": "Append(fixed, Offset(fixed, 2))"},
    ),
    "scale": ("affine.scale", {"scale": "Offset(affine, 1)"}),
    "dim-range": (
        "affine drop.norm.fixed",
        {
            "more": "dim-range-node name=part input-node=affine dim-offset=1 dim=2",
            "drop": "Append(part, part)",
            "norm": "drop",
            "fixed": "norm",
        },
    ),
}
"""Components after collapsing, and what nodes read; the output reads the last, or what it says."""


@pytest.mark.parametrize(("components", "inputs"), PAIRS.values(), ids=PAIRS)
def test_pairs(components: str, inputs: dict[str, str]) -> None:
    """Each pair of components is replaced by one."""
    collapsed = collapse_model(network(**{"output": [*inputs][-1], **inputs}))

    kept = ["affine", "tanh"] if "tanh" in str(inputs) else []
    assert sorted(collapsed.component_names) == sorted([*kept, *components.split()])


@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ({"narrow": "tanh", "back": "narrow"}, "back"),
        ({"fixed": "Scale(2, affine)"}, "Append(fixed, tanh)"),
        ({"norm": "tanh", "wide": "Append(norm, tanh)"}, "wide"),
        ({"norm": "tanh", "sigmoid": "norm"}, "sigmoid"),
    ],
    ids=["the first one narrows", "the bias would be scaled", "two sources", "no partner"],
)
def test_what_cannot_be_collapsed_stays(inputs: dict[str, str], output: str) -> None:
    """Pairs that cannot be collapsed stay as they are."""
    nnet = network(output, **inputs)

    assert collapse_model(nnet).nodes == nnet.nodes


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (CollapseOptions(), {"drop", "norm", "fixed"}),
        (CollapseOptions(dropout=False), {"norm", "fixed"}),
        (CollapseOptions(batchnorm=False), {"fixed"}),
        (CollapseOptions(scale=False), {"drop", "norm"}),
        (CollapseOptions(batchnorm=False, scale=False), set()),
    ],
    ids=["all", "no dropout", "no batchnorm", "no scale", "neither"],
)
def test_options_choose_the_pairs(options: CollapseOptions, gone: set[str]) -> None:
    """A pair is collapsed only if its option is on."""
    nnet = network("scale", drop="tanh", norm="drop", fixed="norm", scale="fixed")

    collapsed = collapse_model(nnet, options)

    removed = {node.name for node in nnet.nodes} - {node.name for node in collapsed.nodes}
    assert removed == gone | {f"{name}_input" for name in gone}


def test_a_convolution_absorbs_dropout() -> None:
    """The parameters of a convolution are scaled; its bias is not."""
    nnet = network("conv", drop="tanh", conv="drop")

    conv = collapse_model(nnet).component("drop.conv")

    np.testing.assert_allclose(conv.linear_params, 0.75 * nnet.component("conv").linear_params)
    assert (conv.bias_params == nnet.component("conv").bias_params).all()


def test_a_tdnn_without_bias_gets_one() -> None:
    """What a batch-norm adds to its input becomes the bias of a component that has none."""
    nnet = network("tdnn", norm="tanh", tdnn="norm")

    tdnn = collapse_model(nnet).component("norm.tdnn")

    added = nnet.component("tdnn").linear_params @ np.tile(nnet.component("norm").offset, 4)
    np.testing.assert_allclose(tdnn.bias_params, added, rtol=1e-6)


def test_components_that_others_use_stay() -> None:
    """A source that also feeds another node is kept for that node."""
    collapsed = collapse_model(network("Append(fixed, norm)", norm="tanh", fixed="norm"))

    assert {"norm", "norm.fixed"} < set(collapsed.component_names)


TAKEN = """
input-node name=input dim=4
component name=bn type=BatchNormComponent dim=4 block-dim=2
component name=aff type=AffineComponent input-dim=4 output-dim=4
component name=bn.aff type=AffineComponent input-dim=4 output-dim=4
component name=bn.aff.2 type=SigmoidComponent dim=4
component-node name=bn component=bn input=input
component-node name=aff component=aff input=bn
component-node name=again component=aff input=bn
component-node name=other component=bn.aff input=Sum(aff, again)
component-node name=last component=bn.aff.2 input=other
output-node name=output input=last
"""


def test_names_that_exist_are_not_taken() -> None:
    """A combined component gets a name that no other has, the same for all pairs like it."""
    nnet = set_test_mode(parse_config(TAKEN))

    collapsed = collapse_model(nnet)

    assert collapsed.component_names == ("bn.aff", "bn.aff.2", "bn.aff.3")
    assert collapsed.component("bn.aff") == nnet.component("bn.aff")
    assert collapsed.component_of(collapsed.node("aff")) == collapsed.component("bn.aff.3")
    assert collapsed.component_of(collapsed.node("again")) == collapsed.component("bn.aff.3")


def test_long_names_are_cut_off() -> None:
    """A name that is made of two long ones is no longer than files can have it."""
    long = "x" * 3000
    config = f"""
input-node name=input dim=2
component name={long}1 type=AffineComponent input-dim=2 output-dim=2
component name={long}2 type=AffineComponent input-dim=2 output-dim=2
component-node name=a component={long}1 input=input
component-node name=b component={long}2 input=a
output-node name=output input=b
"""

    collapsed = collapse_model(parse_config(config))

    assert collapsed.component_names == (long[:1000],)
    write_nnet(collapsed, io.BytesIO())


def test_parameters_that_overflow_are_not_combined() -> None:
    """Two components stay if single precision cannot hold the product of their parameters."""
    nnet = network("fixed", fixed="affine")
    large = {
        f"{name}.linear_params": np.full(nnet.component(name).linear_params.shape, 1e25)
        for name in ("affine", "fixed")
    }
    nnet = nnet.with_state_dict(large)

    collapsed = collapse_model(nnet)

    assert collapsed.node("fixed") == nnet.node("fixed")
    assert collapsed.node("affine") == nnet.node("affine")


def test_a_cycle_of_many_affine_components_is_small() -> None:
    """Each node of a cycle takes in each other one at most once."""
    lines = [
        f"component-node name=n{node} component=fixed input=Offset(n{(node - 1) % 200}, -1)"
        for node in range(200)
    ]
    nnet = network("n0", more="\n".join(lines))

    collapsed = collapse_model(nnet)

    assert sum(map(len, collapsed.component_names)) < 10_000


def test_a_loop_of_affine_components_ends() -> None:
    """Collapsing stops after finitely many rounds at a recurrent pair that could go on forever."""
    nnet = network("fixed", fixed="Offset(fixed2, -1)", fixed2="fixed")

    assert collapse_model(nnet).output_nodes == nnet.output_nodes
