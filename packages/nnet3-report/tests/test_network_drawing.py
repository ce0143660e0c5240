"""Networks in pictures: layers, drawing, tree, and representations in notebooks."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config
from nnet3_report import (
    Arc,
    Box,
    boxes_svg,
    curves_svg,
    format_dot,
    format_tree,
    frames_read,
    html_table,
    lanes,
    layers_of,
    network_svg,
)
from nnet3_report.curves import LINE, TOP
from small_networks import stacked

SPLICE = "input=Append(Offset(input, -1), input, ReplaceIndex(ivector, t, 0))"

CONFIG = f"""
input-node name=ivector dim=3
input-node name=input dim=8
component name=tdnn1.affine type=AffineComponent input-dim=19 output-dim=16
component-node name=tdnn1.affine component=tdnn1.affine {SPLICE}
component name=tdnn1.relu type=RectifiedLinearComponent dim=16
component-node name=tdnn1.relu component=tdnn1.relu input=tdnn1.affine
component name=rnn type=AffineComponent input-dim=16 output-dim=16
component-node name=rnn component=rnn input=Sum(Scale(0.5, tdnn1.relu), IfDefined(Offset(rnn, -3)))
component name=final type=AffineComponent input-dim=32 output-dim=2
component-node name=final component=final input=Append(rnn, tdnn1.relu)
output-node name=output input=final
"""


@pytest.fixture(scope="module")
def nnet() -> Nnet:
    """A network with a splice, a recurrence, a bypass and an i-vector."""
    return parse_config(CONFIG)


def test_layers(nnet: Nnet) -> None:
    """Nodes in a row with a common name are a layer; its reads are known, and which are added."""
    layers = layers_of(nnet)

    assert [layer.name for layer in layers] == [
        "ivector", "input", "tdnn1", "rnn", "final", "output"
    ]  # fmt: skip
    tdnn1, rnn, final = layers[2:5]
    assert tdnn1.nodes == ("tdnn1.affine", "tdnn1.relu")
    assert tdnn1.parts == ("affine", "ReLU")
    assert (tdnn1.input_dim, tdnn1.output_dim, tdnn1.num_parameters) == (19, 16, 320)
    assert [(read.source, read.text) for read in tdnn1.reads] == [
        ("input", "-1"), ("input", "0"), ("ivector", "at t = 0")
    ]  # fmt: skip
    assert [(read.source, read.text, read.is_optional) for read in rnn.reads] == [
        ("tdnn1.relu", "times 0.5 added", False), ("rnn", "-3 added", True)
    ]  # fmt: skip
    assert [(read.source, read.text) for read in final.reads] == [
        ("rnn", "0"), ("tdnn1.relu", "0")
    ]  # fmt: skip


def test_drawing(nnet: Nnet) -> None:
    """A recurrence is a dashed arc of its own colour, a bypass an arc, all other edges lines."""
    drawing = network_svg(layers_of(nnet))

    assert drawing.count('<g class="box') == 6
    assert drawing.count('class="edge optional recurrent"') == 1
    assert drawing.count('class="edge') == 4 + 1 + 2  # lines; recurrence; bypass and i-vector
    assert drawing.count('class="tip') == 4 + 1 + 2


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12))
def test_arcs_in_a_lane_do_not_overlap(ends: list[tuple[int, int]]) -> None:
    """Two arcs in a lane share at most an end."""
    arcs = [Arc(source, target, "", is_dashed=False) for source, target in ends]

    chosen = lanes(arcs)

    for a, lane in zip(arcs, chosen, strict=True):
        for b, other in zip(arcs, chosen, strict=True):
            if a is not b and lane == other:
                assert a.last <= b.first or b.last <= a.first
                assert (a.first, a.last) != (b.first, b.last)


def test_tree(nnet: Nnet) -> None:
    """Each layer is a branch with its reads, and each of its nodes a branch of the layer."""
    assert (
        format_tree(nnet)
        == """\
11 nodes, 4 components, 658 parameters
├─ ivector           3
├─ input             8
├─ tdnn1      19 -> 16  320  reads input (-1, 0), ivector (at t = 0)
│  ├─ affine  19 -> 16  320  Affine
│  └─ relu    16 -> 16       RectifiedLinear
├─ rnn        16 -> 16  272  affine, reads tdnn1 (times 0.5 added), rnn (-3 added?)
├─ final       32 -> 2   66  affine, reads rnn, tdnn1
└─ output            2       reads final
"""
    )


def test_painted_tree(nnet: Nnet) -> None:
    """The coloured tree has the same text, and each part has a kind."""
    kinds: set[str] = set()

    def paint(text: str, kind: str) -> str:
        kinds.add(kind)
        return f"<{text}>"

    painted = format_tree(nnet, paint)

    assert painted.replace("<", "").replace(">", "") == format_tree(nnet).replace(">", "")
    assert kinds == {
        "branch", "input", "output", "layer", "node", "dims", "parameters", "reads", "type"
    }  # fmt: skip


def test_narrow_tree() -> None:
    """Lines longer than the terminal continue under their last column; no word is lost."""
    spliced = "Append(first_layer, Offset(first_layer, -7), Offset(first_layer, 7))"
    nnet = parse_config(
        stacked(
            4,
            "first_layer Affine input-dim=12 output-dim=4",
            f"second_layer Affine input-dim=12 output-dim=4 input={spliced}",
            splice="Append(Offset(input, -12), Offset(input, -6), input)",
        )
    )

    narrow = format_tree(nnet, width=60)

    assert max(map(len, narrow.splitlines())) <= 60
    words = narrow.replace("│", " ").split()
    assert words == format_tree(nnet).replace("│", " ").split()
    assert len(narrow.splitlines()) > len(format_tree(nnet).splitlines())
    assert format_tree(nnet, width=200) == format_tree(nnet)


def test_dim_range_in_a_layer() -> None:
    """A dim-range node belongs to the layer that its name belongs to."""
    nnet = parse_config(
        "input-node name=input dim=4\n"
        "component name=a type=AffineComponent input-dim=4 output-dim=4\n"
        "component-node name=lstm.all component=a input=input\n"
        "dim-range-node name=lstm.c input-node=lstm.all dim-offset=1 dim=2\n"
        "output-node name=output input=lstm.c\n"
    )

    assert "└─ c    2 -> 2      columns 1 to 2" in format_tree(nnet)


def test_what_notebooks_show(nnet: Nnet) -> None:
    """The picture is well-formed XML, and the page states inputs, outputs and context."""
    picture = nnet._repr_svg_()
    page = nnet._repr_html_()

    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert picture in page
    assert "input <b>input</b>: 8 columns" in page
    assert "output <b>output</b>: 2 columns" in page
    assert "context: 1 frames before, 0 behind" in page


def luminance(colour: np.ndarray) -> float:
    """The relative luminance of a colour, as in WCAG.

    Args:
        colour: (3,), red, green and blue from 0 to 1.
    """
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(("ink", "back"), [("1f2328", "ffffff"), ("e6edf3", "0d1117")])
def test_colours_on_light_and_dark_pages(nnet: Nnet, ink: str, back: str) -> None:
    """Labels have a contrast of at least 4.5 to the page; no colour stands for both kinds."""
    picture = nnet._repr_svg_()
    [*mixed] = re.findall(r"color-mix\(in srgb, #(\w{6}) (\d+)%, currentColor\)", picture)

    def rgb(text: str) -> np.ndarray:
        return np.array([*bytes.fromhex(text)]) / 255

    assert len(mixed) == picture.count("#") == 3
    for colour, share in mixed:
        part = int(share) / 100
        dark, light = sorted(
            luminance(each) for each in (part * rgb(colour) + (1 - part) * rgb(ink), rgb(back))
        )
        assert (light + 0.05) / (dark + 0.05) > 4.5


def test_tables_hold_text() -> None:
    """Text in a table is escaped; numbers have commas."""
    table = html_table(["a"], [["<b>"], [1234]])

    assert "&lt;b&gt;" in table
    assert ">1,234</td>" in table


def test_frames_that_components_read() -> None:
    """Layers, tree and report say which frames a component reads, if it chooses them itself."""
    nnet = parse_config(
        stacked(
            4,
            "tdnn Tdnn input-dim=4 output-dim=3 time-offsets=-3,0",
            "tdnn.relu RectifiedLinear dim=3",
            "extract StatisticsExtraction input-dim=3",
            "pool StatisticsPooling input-dim=7 left-context=0 right-context=90",
        )
    )

    assert [frames_read(each) for each in nnet.components] == ["-3, 0", "", "", "0 to +90"]
    assert [layer.parts for layer in layers_of(nnet)[1:-1]] == [
        ("TDNN (-3, 0)", "ReLU"),
        ("StatisticsExtraction",),
        ("StatisticsPooling (0 to +90)",),
    ]
    assert "Tdnn (-3, 0)\n" in format_tree(nnet)


def test_names_of_curves() -> None:
    """Names of curves that end at the top lie apart, below the top of the drawing."""
    xs = np.arange(3.0)
    curves = dict.fromkeys(("first", "second", "third"), (xs, xs))
    svg = curves_svg(curves, title="Three", x_title="step")

    heights = [float(y) for y in re.findall(r'class="legend \w+" x="\d+" y="([\d.]+)"', svg)]
    assert sorted(heights) == [TOP + 4, TOP + LINE + 4, TOP + 2 * LINE + 4]


def test_boxes() -> None:
    """A box has four texts, and what another box reads of it is a line, an arc or a recurrence."""
    boxes = [
        Box(name="a", corner="2", below="first", below_corner="1 of 3", title="of all <a>"),
        Box(name="b", kind="more"),
        Box(name="c"),
    ]
    arcs = [Arc(0, 1, "x", False), Arc(0, 2, "0", False), Arc(2, 1, "y", True)]
    drawing = ElementTree.fromstring(boxes_svg(boxes, arcs, "Three"))
    svg = "{http://www.w3.org/2000/svg}"
    groups = drawing.findall(f"{svg}g")

    assert [text.text for text in groups[0].findall(f"{svg}text")] == ["a", "2", "first", "1 of 3"]
    assert groups[0].findtext(f"{svg}title") == "of all <a>"
    assert [group.get("class") for group in groups] == ["box layer", "box more", "box layer"]
    assert [path.get("class") for path in drawing.findall(f"{svg}path")] == [
        "edge", "tip", "edge", "tip", "edge optional recurrent", "tip recurrent"
    ]  # fmt: skip
    assert [text.text for text in drawing.findall(f"{svg}text")] == ["x", "y"]


def test_inputs_and_outputs_say_what_they_are(nnet: Nnet) -> None:
    """A layer may have the name of an output; the boxes tell them apart."""
    drawing = network_svg(layers_of(nnet))

    assert drawing.count(">input of the network<") == 2
    assert drawing.count(">output of the network<") == 1


def test_levels_of_numbers_of_things() -> None:
    """Nobody reads "1.5 jobs" beside a curve of whole numbers; without names it is wider."""
    curve = np.arange(3.0), np.array([1.0, 2.0, 1.0])
    axes = {"title": "Jobs", "x_title": "iteration", "y_start": 0.0, "y_step": 1.0}
    named, nameless = (curves_svg({name: curve}, **axes) for name in ("jobs", ""))

    assert re.findall(r'class="tick"[^>]*>([^<]*)<', nameless) == ["0", "1", "2"]
    ends = [float(re.findall(r"L ([\d.]+) [\d.]+\"", svg)[0]) for svg in (named, nameless)]
    assert ends == [530, 616]


@pytest.mark.parametrize(
    "ends", [(0.0, 5e-324), (-1.7e308, 1.7e308), (1e305, 1e305), (1.0, 1.0 + 1e-15)]
)
def test_curves_of_any_numbers(ends: tuple[float, float]) -> None:
    """Values that hardly differ, and the largest that there are, have a picture and no warning."""
    svg = curves_svg({"loss": (np.arange(2.0), np.array(ends))}, title="Loss", x_title="step")

    assert 1 < svg.count('class="tick"') < 10
    assert "nan" not in svg


def test_dot() -> None:
    """Nodes are vertices; a descriptor that is not just a node labels its edge."""
    nnet = parse_config(f"{CONFIG}output-node name=output2 input=IfDefined(Offset(final, 2))")
    lines = [line.strip() for line in format_dot(nnet).splitlines()]

    assert '"input" [label="input\\n8 columns", shape=ellipse];' in lines
    assert '"final" [label="final\\nAffineComponent\\n32 to 2 columns"];' in lines
    assert '"tdnn1.affine" -> "tdnn1.relu";' in lines
    assert '"input" -> "tdnn1.affine" [label="Offset(input, -1)"];' in lines
    assert '"final" -> "output2" [label="Offset(final, 2)", style=dashed];' in lines
    assert len([line for line in lines if line.startswith('"tdnn1.relu" -> "final"')]) == 1


def test_request() -> None:
    """A line of the table has the number of rows of a node, their sequences and times."""
    request = ComputationRequest(
        inputs=[IoSpecification.from_range("input", -2, 5, n=3)],
        outputs=[IoSpecification.from_range("output", 0, 1, has_deriv=True)],
        need_model_derivative=True,
    )

    cells = re.findall(r"<td[^>]*>(.*?)</td>", request._repr_html_() or "")

    assert cells[:6] == ["given", "input", "21", "0 to 2", "-2 to 4", ""]
    assert cells[6:] == ["wanted", "output", "1", "0", "0", "yes"]
    assert "derivative with respect to the model" in request._repr_html_() or ""
