"""Draws the pictures of `docs/stages.md` from what the packages compute for its example.

uv run python docs/pictures/draw.py          # writes network.svg, rows.svg, lifetimes.svg
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from nnet3_compiler import compile_computation
from nnet3_computation import (
    AcceptInput,
    ComputationRequest,
    DeallocMatrix,
    IoSpecification,
    NnetComputation,
)
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ComputationGraph, build_computation_graph
from nnet3_optimizer import optimize

FOLDER = Path(__file__).parent

CONFIG = """\
input-node name=input dim=8
component name=tdnn1 type=AffineComponent input-dim=24 output-dim=6
component-node name=tdnn1 component=tdnn1 input=Append(Offset(input, -1), input, Offset(input, 1))
component name=relu1 type=RectifiedLinearComponent dim=6
component-node name=relu1 component=relu1 input=tdnn1
component name=final type=AffineComponent input-dim=12 output-dim=3
component-node name=final component=final input=Append(Offset(relu1, -2), relu1)
output-node name=output input=final
"""

LAYERS = ("input", "tdnn1", "relu1", "final", "output")
"""The nodes that are drawn; inputs of component nodes are lines."""

INK, GREY, BLUE, PALE = "#30363d", "#7b8591", "#1f6fb4", "#d6e6f5"
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="13"'


DARK = {
    'rect[width="100%"]': "#0d1117",
    'rect[fill="white"]:not([width="100%"])': "#161b22",
    f'rect[fill="{PALE}"]': "#1c3a57",
    f'text[fill="{INK}"]': "#e6edf3",
    f'text[fill="{BLUE}"]': "#79c0ff",
    f'text[fill="{GREY}"]': "#9198a1",
    'text[fill="#c5cad0"]': "#545d68",
}
"""The colours of shapes where the reader has chosen dark ones."""


def request() -> ComputationRequest:
    """Frames -3 to 4 of input are given, frames 0 and 3 of output are wanted."""
    return ComputationRequest(
        inputs=[IoSpecification.from_range("input", -3, 5)],
        outputs=[IoSpecification(name="output", indexes=[(0, 0, 0), (0, 3, 0)])],
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", color: str = INK) -> str:
    """Words at a place."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """A rectangle with round corners."""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} rx="4" fill="{fill}" stroke="{GREY}"/>'


def line(x1: float, y1: float, x2: float, y2: float, color: str = GREY) -> str:
    """A line between two places."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"/>'


def drawing(title: str, width: int, height: int, shapes: Iterable[str]) -> str:
    """An SVG document."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" {FONT}>'
    )
    background = '<rect width="100%" height="100%" fill="white"/>'
    rules = " ".join(f"{selector} {{ fill: {color} }}" for selector, color in DARK.items())
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>"
    title = f"<title>{escape(title)}</title>"
    return "\n".join([head, title, style, background, *shapes, "</svg>", ""])


def network(nnet: Nnet) -> str:
    """The layers from top to bottom, with what each reads."""
    shapes = []
    for number, name in enumerate(LAYERS):
        y = 20 + 76 * number
        shapes.append(box(20, y, 150, 36, PALE if name in ("input", "output") else "white"))
        shapes.append(text(95, y + 23, f"{name}, dim {nnet.node_dim(name)}", anchor="middle"))
        if number:
            reader = name if name == "output" else f"{name}_input"
            shapes.append(line(95, y - 40, 95, y))
            shapes.append(text(105, y - 15, str(nnet.node(reader).descriptor), color=BLUE))
    return drawing("The example network", 460, 20 + 76 * len(LAYERS), shapes)


def rows(nnet: Nnet, graph: ComputationGraph) -> str:
    """A cell for each frame of each layer, and lines to the cells that it reads."""
    first, last, left, size = -3, 4, 80, 56
    needed = {
        name: set(graph.index_set(nnet.node_index(name)).indexes[:, 1].tolist()) for name in LAYERS
    }

    def middle(t: int) -> float:
        return left + size * (t - first) + size / 2

    lines, cells = [], []
    for number, name in enumerate(LAYERS):
        y = 30 + 70 * number
        cells.append(text(left - 12, y + 20, name, anchor="end"))
        for t in range(first, last + 1):
            is_needed = t in needed[name]
            fill = "white" if not is_needed else BLUE if name in ("input", "output") else PALE
            cells.append(box(middle(t) - 18, y, 36, 30, fill))
            ink = "#c5cad0" if not is_needed else "white" if fill == BLUE else INK
            cells.append(text(middle(t), y + 20, f"{t}", anchor="middle", color=ink))
        offsets = {"tdnn1": (-1, 0, 1), "final": (-2, 0)}.get(name, (0,))
        for t in needed[name] if number else ():
            lines += (line(middle(t + dt), y - 40, middle(t), y) for dt in offsets)
    width = left + size * (last - first + 1) + 20
    cells.append(text(left - 12, 20, "frame t", anchor="end", color=GREY))
    return drawing("Which frames of which layers are computed", width, 350, [*lines, *cells])


def lifetimes(programs: dict[str, NnetComputation]) -> str:
    """For each program a bar for each matrix, from its allocation to its end."""
    shapes, y, step, left = [], 24.0, 14, 90
    for title, computation in programs.items():
        commands = computation.commands
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for position, command in enumerate(commands):
            matrix = getattr(command, "matrix", 0)
            if isinstance(command, DeallocMatrix):
                ends[matrix] = position
            elif matrix and (type(command).__name__.startswith("Alloc") or _is_accepted(command)):
                begins[matrix] = position
        shapes.append(text(left, y, f"{title}: {len(commands)} commands", color=BLUE))
        for matrix, begin in begins.items():
            y += 20
            end = ends.get(matrix, len(commands))
            num_rows, columns = computation.matrices[matrix]
            size = f"{num_rows} x {columns}"
            shapes.append(text(left - 10, y + 11, f"m{matrix}, {size}", anchor="end"))
            shapes.append(box(left + step * begin, y, step * (end - begin + 1) - 2, 14, PALE))
        y += 50
    width = left + step * max(len(each.commands) for each in programs.values()) + 20
    return drawing("When each matrix has memory", width, int(y) - 10, shapes)


def _is_accepted(command: object) -> bool:
    """Whether a command takes a matrix from the user."""
    return isinstance(command, AcceptInput)


def pictures() -> dict[str, str]:
    """The text of each picture by its file name."""
    nnet, wanted = parse_config(CONFIG), request()
    compiled = compile_computation(nnet, wanted)
    return {
        "network.svg": network(nnet),
        "rows.svg": rows(nnet, build_computation_graph(nnet, wanted)),
        "lifetimes.svg": lifetimes({"compiled": compiled, "optimized": optimize(nnet, compiled)}),
    }


if __name__ == "__main__":
    for name, picture in pictures().items():
        (FOLDER / name).write_text(picture)
