"""Tools that describe models: as text, as a tree in a terminal, as a page for a browser."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
import nnet3_descriptors
import nnet3_graph
import nnet3_report as drawing
import nnet3_tables

from nnet3_tools import cli, streams

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest


_STYLES: dict[str, dict[str, object]] = {
    "branch": {"dim": True},
    "input": {"bold": True, "fg": "cyan"},
    "output": {"bold": True, "fg": "cyan"},
    "layer": {"bold": True},
    "parameters": {"fg": "green"},
    "reads": {"fg": "blue"},
    "type": {"dim": True},
}
"""How `click.style` shows the parts of a tree; other parts are plain."""


def is_coloured() -> bool:
    """Whether standard output is a terminal that shows colours.

    A user turns colours off by setting NO_COLOR to anything but "" (https://no-color.org); a
    terminal that calls itself "dumb" has none.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def paint(text: str, kind: str) -> str:
    """Gives a part of a tree its colours, see `nnet3_report.format_tree`."""
    style = _STYLES.get(kind)
    return click.style(text, **style) if style else text  # type: ignore[arg-type]


@cli.tool(
    "nnet3-info",
    "NNET-IN",
    cli.boolean_option(
        "--tree",
        "Print the layers and their nodes as a tree instead. (-3?): a layer reads the frame 3 "
        "before its own, but also works without it.",
    ),
)
def nnet3_info(nnet_in: str, tree: bool) -> None:
    """Print the context, nodes and components of the network in NNET-IN, .raw or .mdl.

    On a terminal a tree has colours, unless NO_COLOR is set, and keeps to the terminal's width.
    """
    nnet = streams.read_nnet(nnet_in)
    if not tree:
        streams.print_text(nnet.info(drawing.context_of(nnet)))
    elif is_coloured():
        streams.print_text(drawing.format_tree(nnet, paint, width=terminal_width()))
    else:
        streams.print_text(drawing.format_tree(nnet, width=terminal_width()))


@cli.tool("nnet3-am-info", "MODEL-IN")
def nnet3_am_info(model_in: str) -> None:
    """Print dimensions, priors and the network of the acoustic model MODEL-IN, a .mdl file."""
    model = streams.read(nnet3_descriptors.read_acoustic_model, model_in)
    streams.print_text(model.info(drawing.context_of(model.nnet)))


USUAL_FRAMES, USUAL_UTTERANCE = 50, 200


@cli.tool(
    "nnet3-report",
    "MODEL-IN PAGE-OUT",
    cli.option("--request path", None, "A request that was saved with ComputationRequest.save."),
    cli.option(
        "--frames",
        None,
        "Frames of output to request; of a network that pools over whole utterances "
        "(x-vectors), frames of the utterance. 0 for no request. "
        f"[default: {USUAL_FRAMES}; {USUAL_UTTERANCE} for an utterance]",
        type=click.IntRange(min=0),
    ),
    click.option("--sequences", type=click.IntRange(min=1), default=1, show_default=True),
    cli.option(
        "--frame-subsampling-factor every",
        1,
        "Number of input frames for each row of output.",
        least=1,
        shown=True,
    ),
    cli.boolean_option("--train", "Request the gradient, too."),
    cli.boolean_option(
        "--time", "Run the request, and show where time goes.", default=True, shown=True
    ),
)
def nnet3_report(
    model_in: str,
    page_out: str,
    path: str | None,
    frames: int | None,
    sequences: int,
    every: int,
    train: bool,
    time: bool,
) -> None:
    """Describe the network in MODEL-IN, .raw or .mdl, as the HTML page PAGE-OUT.

    The page has a drawing of the network, a table of its components with statistics of parameters
    and activations, the program of a request, and the time of each part of it. It needs no other
    file. PAGE-OUT may replace a page, and no other file; "-" stands for standard output.
    """
    from pathlib import Path

    from nnet3_report.pages import pooled_frames, report_page, usual_request

    if not streams.is_stream(page_out):
        streams.check_page(page_out)
    nnet = streams.read_nnet(model_in)
    name = Path(model_in).name or model_in

    cli.log(f"Read {model_in}: {len(nnet.nodes)} nodes, {nnet.num_parameters:,} parameters")
    if path is not None:
        page = report_page(name, nnet, saved_request(path), timed=time, say=cli.log)
    elif frames == 0:
        page = report_page(name, nnet, say=cli.log)
    else:
        asked = frames or (USUAL_UTTERANCE if pooled_frames(nnet) else USUAL_FRAMES)
        try:
            request = usual_request(nnet, asked, sequences, every, train=train)
            page = report_page(name, nnet, request, timed=time, say=cli.log)
        except (nnet3_graph.NotComputableError, nnet3_graph.ContextError) as error:
            if frames is not None:
                raise
            reason = str(error).splitlines()[0].rstrip(":")
            cli.log(f"the page is without a request, as {asked} frames fail: {reason}")
            page = report_page(name, nnet, say=cli.log)
    with nnet3_tables.opened_to_write(page_out) as file:
        file.write(page.encode(errors="replace"))  # names of files may be no UTF-8
    cli.log(f"Wrote the page to {page_out}")


def saved_request(path: str) -> ComputationRequest:
    """The request in a file.

    Raises:
        SerializationError: The file holds no request; the message names it.
    """
    import nnet3_computation

    try:
        return nnet3_computation.ComputationRequest.load(path)
    except nnet3_descriptors.SerializationError as error:
        raise nnet3_descriptors.SerializationError(f"{path}: {error}") from error


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is none."""
    import shutil

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else None
