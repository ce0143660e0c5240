"""Draws the ONNX model of examples/digits for `docs/onnx.md`: each operator and what it reads.

uv run python docs/pictures/draw_onnx.py     # writes digits-onnx.svg
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import mean
from xml.sax.saxutils import escape

import onnx
from nnet3_tools.models.exporting import nnet3_to_onnx

FOLDER = Path(__file__).parent
MODEL = FOLDER.parents[1] / "examples" / "digits" / "final.raw"
FRAMES = 50

INK, GREY, FILLS = "#30363d", "#7b8591", {"MatMul": "#d6e6f5", "Relu": "#fde7c9", "": "#ffffff"}
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'
WIDTH, HEIGHT, COLUMN, ROW = 216, 24, 232, 40


def model() -> onnx.ModelProto:
    """What nnet3-to-onnx writes for chunks of 50 frames."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "digits.onnx")
        nnet3_to_onnx([str(MODEL), str(path), f"--frames={FRAMES}"], standalone_mode=False)
        return onnx.load(path)


def levels(graph: onnx.GraphProto) -> dict[str, int]:
    """How many operators there are at most before each tensor; the input has 0."""
    level = {graph.input[0].name: 0}
    for node in graph.node:
        level[node.output[0]] = 1 + max(level[name] for name in node.input if name in level)
    return level


def places(graph: onnx.GraphProto, level: dict[str, int]) -> dict[str, tuple[float, float]]:
    """The middle of each box: a row for each level, each box near what it reads."""
    rows: dict[int, list[onnx.NodeProto]] = {}
    for node in graph.node:
        rows.setdefault(level[node.output[0]], []).append(node)
    place = {graph.input[0].name: (0.0, 0.0)}
    for number, nodes in sorted(rows.items()):
        wanted = {n.output[0]: mean(place[i][0] for i in n.input if i in place) for n in nodes}
        order = sorted(wanted, key=lambda name: wanted[name])
        middle = mean(wanted.values()) - COLUMN * (len(order) - 1) / 2
        for position, name in enumerate(order):
            place[name] = middle + position * COLUMN, number * ROW
    return place


def box(x: float, y: float, kind: str, words: str) -> str:
    """A box with an operator and the component that it is of."""
    fill = FILLS.get(kind, FILLS[""])
    return (
        f'<rect x="{x - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="4" '
        f'fill="{fill}" stroke="{GREY}"/>\n'
        f'<text x="{x:g}" y="{y + 16:g}" text-anchor="middle" fill="{INK}">'
        f'<tspan font-weight="bold">{escape(kind)}</tspan> {escape(words)}</text>'
    )


def owner(node: onnx.NodeProto) -> str:
    """The component that an operator is of, the last one if it is of several joined ones."""
    name = node.name.rpartition("/")[0]
    if name == "rows":  # of what a descriptor says
        return "of the sum"
    parts = name.split(".")
    return ".".join(parts[-2:]) if len(parts) > 2 else name


def pictures() -> dict[str, str]:
    """The text of the picture by its file name."""
    return {"digits-onnx.svg": drawing()}


def drawing() -> str:
    """The drawing, as SVG."""
    graph = model().graph
    place = places(graph, levels(graph))
    lines, boxes = [], [box(*place[graph.input[0].name], "input", "any number of chunks")]
    for node in graph.node:
        x, y = place[node.output[0]]
        boxes.append(box(x, y, node.op_type, owner(node)))
        for source in (place[name] for name in node.input if name in place):
            top, bend = source[1] + HEIGHT, (source[1] + HEIGHT + y) / 2
            lines.append(
                f'<path d="M {source[0]:g} {top:g} C {source[0]:g} {bend:g} {x:g} {bend:g} '
                f'{x:g} {y:g}" fill="none" stroke="{GREY}"/>'
            )
    left = min(x for x, _ in place.values()) - WIDTH / 2 - 10
    right = max(x for x, _ in place.values()) + WIDTH / 2 + 10
    bottom = max(y for _, y in place.values()) + HEIGHT + 10
    size = f'viewBox="{left:g} -10 {right - left:g} {bottom + 10:g}"'
    size += f' width="{right - left:g}" height="{bottom + 10:g}"'
    background = f'<rect x="{left:g}" y="-10" width="100%" height="100%" fill="#ffffff"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>'
    return "\n".join([head, background, *lines, *boxes, "</svg>", ""])


if __name__ == "__main__":
    for name, picture in pictures().items():
        (FOLDER / name).write_text(picture)
