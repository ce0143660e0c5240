"""nnet3-report: describes a model as a page for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import nnet3_computation
import nnet3_descriptors
import nnet3_graph

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest

NAME = "nnet3-report"
USUAL_FRAMES, USUAL_UTTERANCE = 50, 200


@click.command(cls=KaldiCommand)
@click.argument("model_in", metavar="MODEL-IN")
@click.argument("page_out", metavar="PAGE-OUT")
@click.option("--request", "path", help="A request that was saved with ComputationRequest.save.")
@click.option(
    "--frames",
    type=click.IntRange(min=0),
    help="Frames of output to request; of a network that pools over whole utterances (x-vectors), "
    "frames of the utterance. 0 for no request. "
    f"[default: {USUAL_FRAMES}; {USUAL_UTTERANCE} for an utterance]",
)
@click.option("--sequences", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--frame-subsampling-factor",
    "every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of input frames for each row of output.",
)
@boolean_option("--train", help="Request the gradient, too.")
@boolean_option(
    "--time", default=True, show_default=True, help="Run the request, and show where time goes."
)
def command(
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
    file.
    """
    from nnet3_descriptors.files import write_atomically
    from nnet3_report.pages import pooled_frames, report_page, usual_request

    with readable(model_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    name = Path(model_in).name or model_in

    def say(line: str) -> None:
        log(NAME, line)

    say(f"Read {model_in}: {len(nnet.nodes)} nodes, {nnet.num_parameters:,} parameters")
    if path is not None:
        page = report_page(name, nnet, saved_request(path), timed=time, say=say)
    elif frames == 0:
        page = report_page(name, nnet, say=say)
    else:
        asked = frames or (USUAL_UTTERANCE if pooled_frames(nnet) else USUAL_FRAMES)
        try:
            request = usual_request(nnet, asked, sequences, every, train=train)
            page = report_page(name, nnet, request, timed=time, say=say)
        except (nnet3_graph.NotComputableError, nnet3_graph.ContextError) as error:
            if frames is not None:
                raise
            reason = str(error).splitlines()[0].rstrip(":")
            say(f"the page is without a request, as {asked} frames fail: {reason}")
            page = report_page(name, nnet, say=say)
    write_atomically(page_out, [page.encode()])
    say(f"Wrote the page to {page_out}")


def saved_request(path: str) -> ComputationRequest:
    """The request in a file.

    Raises:
        SerializationError: The file holds no request; the message names it.
    """
    try:
        return nnet3_computation.ComputationRequest.load(path)
    except nnet3_descriptors.SerializationError as error:
        raise nnet3_descriptors.SerializationError(f"{path}: {error}") from error


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
