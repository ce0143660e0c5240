"""Network passes for inference: affine maps split around loops, and made TDNN components.

Outputs before and after are compared on random networks by `tests/judge_random_collapsing.py`.
"""

import numpy as np
import pytest
from nnet3_descriptors import ComponentNode, Nnet, parse_config
from nnet3_descriptors.editing import affine_to_tdnn, for_inference, split_affine_maps
from nnet3_descriptors.editing.structure import loops

LSTM = """
input-node name=input dim=3
component name=gates type=NaturalGradientAffineComponent input-dim=5 output-dim=16
component name=cell type=LstmNonlinearityComponent cell-dim=4
component name=rp type=AffineComponent input-dim=4 output-dim=6
component name=next type=AffineComponent input-dim=12 output-dim=4
component-node name=gates component=gates input=Append(input, IfDefined(Offset(r, -3)))
component-node name=cell component=cell input=Append(gates, IfDefined(Offset(c, -3)))
dim-range-node name=c input-node=cell dim-offset=0 dim=4
dim-range-node name=m input-node=cell dim-offset=4 dim=4
component-node name=rp component=rp input=m
dim-range-node name=r input-node=rp dim-offset={first} dim=2
dim-range-node name=p input-node=rp dim-offset=0 dim=2
component-node name=next component=next input=Append(Offset(rp, -3), rp)
output-node name=output input=next
"""

AFFINE = """
input-node name=input dim=2
component name=affine type=AffineComponent input-dim=4 output-dim=3
component-node name=affine component=affine input=Append({parts})
output-node name=output input={output}
"""

LOOP = AFFINE.replace("output-dim=3", "output-dim=2")


def made(config: str) -> Nnet:
    """A network with random parameters."""
    return parse_config(config, rng=np.random.default_rng(0))


def inputs(nnet: Nnet) -> dict[str, str]:
    """The descriptor of each component node."""
    return {
        node.name: str(nnet.node(f"{node.name}_input").descriptor)
        for node in nnet.nodes
        if isinstance(node, ComponentNode)
    }


def test_recurrent_layer() -> None:
    """Gates are split by their inputs, and the projection by the columns that the loop reads."""
    nnet = made(LSTM.format(first=0))
    split = split_affine_maps(nnet)

    assert inputs(split) == {
        "gates.feedforward": "input",
        "gates.recurrent": "IfDefined(Offset(r, -3))",
        "cell": "Append(Sum(gates.feedforward, gates.recurrent), IfDefined(Offset(c, -3)))",
        "rp.recurrent": "m",
        "rp.feedforward2": "m",
        "next": (
            "Append(Offset(rp.recurrent, -3), Offset(rp.feedforward2, -3), "
            "rp.recurrent, rp.feedforward2)"
        ),
    }
    gates, rp = nnet.component("gates"), nnet.component("rp")
    feedforward, recurrent = (
        split.component("gates.feedforward"),
        split.component("gates.recurrent"),
    )
    assert np.array_equal(feedforward.linear_params, gates.linear_params[:, :3])
    assert np.array_equal(feedforward.bias_params, gates.bias_params)
    assert np.array_equal(recurrent.params, gates.linear_params[:, 3:])
    assert np.array_equal(split.component("rp.feedforward2").linear_params, rp.linear_params[2:])
    assert set(split.component_names).isdisjoint({"gates", "rp"})


def test_columns_around_those_of_the_loop() -> None:
    """Columns before and behind those that the loop reads become two maps."""
    split = split_affine_maps(made(LSTM.format(first=2)))

    assert inputs(split)["next"].startswith(
        "Append(Offset(rp.feedforward, -3), Offset(rp.recurrent, -3), Offset(rp.feedforward2, -3)"
    )
    assert (split.node("r").source, split.node("r").dim_offset) == ("rp.recurrent", 0)
    assert (split.node("p").source, split.node("p").dim_offset) == ("rp.feedforward", 0)


@pytest.mark.parametrize(
    "reader",
    [
        "dim-range-node name=some input-node=rp dim-offset=1 dim=3\noutput-node name=y input=some",
        "output-node name=y input=Sum(rp, Const(1, 6))",
    ],
)
def test_columns_that_are_read_across(reader: str) -> None:
    """A projection stays whole if something reads columns of both kinds in one."""
    assert "rp" in inputs(split_affine_maps(made(LSTM.format(first=0) + reader)))


@pytest.mark.parametrize(
    "reader",
    [
        "dim-range-node name=part input-node=gates dim-offset=0 dim=4\n"
        "output-node name=y input=part",
        "output-node name=y input=Switch(gates, cells)\n"
        "component name=cells type=AffineComponent input-dim=3 output-dim=16\n"
        "component-node name=cells component=cells input=input",
        "component name=n type=NoOpComponent dim=16\n"
        "component-node name=gates.recurrent component=n input=gates",
    ],
)
def test_gates_that_stay_whole(reader: str) -> None:
    """They do if a reader cannot add, or if a name of a new node is taken."""
    assert "gates" in inputs(split_affine_maps(made(LSTM.format(first=0) + reader)))


def test_readers_add_in_place() -> None:
    """Whatever forwards the output of a split map forwards both terms."""
    reader = (
        "output-node name=y input=Sum(Scale(0.5, gates), IfDefined(Round(Offset(gates, 1), 3)))"
    )
    split = split_affine_maps(made(LSTM.format(first=0) + reader))

    scaled = "Sum(Scale(0.5, gates.feedforward), Scale(0.5, gates.recurrent))"
    rounded = ", ".join(
        f"Round(Offset(gates.{term}, 1), 3)" for term in ("feedforward", "recurrent")
    )
    assert str(split.node("y").descriptor) == f"Sum({scaled}, IfDefined(Sum({rounded})))"


@pytest.mark.parametrize(
    ("parts", "base", "offsets"),
    [
        ("Offset(input, -2), Offset(input, 1)", "input", (-2, 1)),
        ("Offset(input, 3), input", "input", (3, 0)),
        ("Offset(input, 1, 2), Offset(input, 4, 2)", "Offset(input, 0, 2)", (1, 4)),
        ("Round(input, 2), Offset(Round(input, 2), 1)", "Round(input, 2)", (0, 1)),
        ("IfDefined(Offset(input, -1)), IfDefined(Offset(input, 1))", "IfDefined(input)", (-1, 1)),
    ],
)
def test_spliced_inputs(parts: str, base: str, offsets: tuple[int, ...]) -> None:
    """A TDNN component, with the parameters of the map, reads what the parts repeat."""
    nnet = made(AFFINE.format(parts=parts, output="affine"))
    changed = affine_to_tdnn(nnet)

    assert inputs(changed) == {"affine": base}
    tdnn, affine = changed.component("affine"), nnet.component("affine")
    assert tdnn.time_offsets == offsets
    assert np.array_equal(tdnn.linear_params, affine.linear_params)
    assert np.array_equal(tdnn.bias_params, affine.bias_params)


@pytest.mark.parametrize(
    "parts",
    [
        "input, input",
        "input, Offset(input, 17)",
        "input, Scale(0.5, Offset(input, 1))",
        "Round(input, 2), Round(Offset(input, 1), 2)",
        "Const(1, 2), Offset(input, 1)",
        "Offset(input, 0, 1), Offset(input, 1)",
    ],
)
def test_other_inputs(parts: str) -> None:
    """A map stays what it is if its parts are not the same at several times near each other."""
    nnet = made(AFFINE.format(parts=parts, output="affine"))

    assert affine_to_tdnn(nnet).component("affine").type == "AffineComponent"


def test_loops_are_not_spliced() -> None:
    """A map within a loop stays an affine map."""
    parts = ", ".join(f"IfDefined(Offset(affine, -{t}))" for t in (2, 1))
    nnet = made(LOOP.format(parts=parts, output="Sum(affine, input)"))

    assert affine_to_tdnn(nnet).component("affine").type == "AffineComponent"


def test_shared_component() -> None:
    """Where nodes share a map, each gets a TDNN component of its own, if its name is free."""
    nnet = made(
        AFFINE.format(parts="input, Offset(input, 1)", output="Sum(affine, other)")
        + "component-node name=other component=affine input=Append(input, Offset(input, 2))\n"
        "component-node name=third component=affine input=Append(input, input)\n"
        "output-node name=y input=third"
    )
    changed = affine_to_tdnn(nnet)

    assert changed.component_of(changed.node("other")).time_offsets == (0, 2)
    assert changed.component_of(changed.node("affine")).type == "AffineComponent"
    assert changed.component_of(changed.node("third")).type == "AffineComponent"


def test_loops() -> None:
    """Nodes that depend on each other are in one loop; those between two loops are in none."""
    config = """
input-node name=input dim=2
component name=n type=NoOpComponent dim=2
component-node name=a component=n input=Sum(input, IfDefined(Offset(b, -1)))
component-node name=b component=n input=a
component-node name=between component=n input=b
component-node name=c component=n input=Sum(between, IfDefined(Offset(c, -1)))
component-node name=end component=n input=c
output-node name=output input=end
"""
    found = loops(made(config))

    first, second = frozenset({"a_input", "a", "b_input", "b"}), frozenset({"c_input", "c"})
    assert found == dict.fromkeys(first, first) | dict.fromkeys(second, second)


def test_passes_follow_each_other() -> None:
    """A layer above a split projection becomes a TDNN component of both halves."""
    changed = affine_to_tdnn(split_affine_maps(made(LSTM.format(first=0))))

    assert inputs(changed)["next"] == "Append(rp.recurrent, rp.feedforward2)"
    assert changed.component("next").time_offsets == (-3, 0)


def test_all_passes() -> None:
    """The layer above, which is an affine map of the projection, is folded into one first."""
    changed = for_inference(made(LSTM.format(first=0)))

    assert inputs(changed)["next"] == "m"
    assert changed.component("rp.next").time_offsets == (-3, 0)


def test_map_that_reads_itself() -> None:
    """Both new maps are terms of what the recurrent one reads."""
    split = split_affine_maps(
        made(LOOP.format(parts="input, IfDefined(Offset(affine, -1))", output="affine"))
    )

    past = "IfDefined(Sum(Offset(affine.feedforward, -1), Offset(affine.recurrent, -1)))"
    assert inputs(split) == {"affine.feedforward": "input", "affine.recurrent": past}
