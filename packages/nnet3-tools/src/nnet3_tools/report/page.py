"""The page about a model: one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from nnet3_compiler.drawing import memory_svg
from nnet3_descriptors import ComponentNode, NetworkError, Nnet, compute_context
from nnet3_descriptors.drawing import layers_of, network_svg
from nnet3_graph import ComputationRequest, IoSpecification, build_computation_graph

from nnet3_tools.report.component_facts import component_facts
from nnet3_tools.report.frames_picture import frames_svg
from nnet3_tools.report.program_facts import program_facts
from nnet3_tools.report.rendering import rendered

if TYPE_CHECKING:
    from nnet3_tools.report.program_facts import ProgramFacts

MOST_LINES = 3000
"""The most lines of a program on the page."""


def report_page(
    name: str, nnet: Nnet, request: ComputationRequest | None = None, *, timed: bool = False
) -> str:
    """Describes a network, and the program of a request.

    Args:
        name: The network's name on the page.
        nnet: The network.
        request: The request; without one, the page is about the network only.
        timed: Whether to run the program, and show where the time goes.

    Returns:
        An HTML document; it needs no network and no other file.

    Raises:
        NotComputableError: An output of the request cannot be computed.
        RequestError: The request does not fit the network.
        UnsupportedComponentError, DeviceMemoryError: The program to be timed cannot run.
    """
    program = None if request is None else program_facts(nnet, request)
    times = None
    if request is not None and program is not None and timed:
        from nnet3_tools.report.time_facts import time_facts  # the runtime takes long to import

        times = time_facts(nnet, request, program.optimized)
    facts = list(component_facts(nnet))
    layers = layers_of(nnet)
    number_of = {node: number for number, layer in enumerate(layers) for node in layer.nodes}
    return rendered(
        "page.html",
        name=name,
        nnet=nnet,
        context=_context(nnet),
        used=sum(isinstance(node, ComponentNode) for node in nnet.nodes),
        drawing=network_svg(layers),
        has_recurrence=any(
            number_of[read.source] >= number
            for number, layer in enumerate(layers)
            for read in layer.reads
        ),
        has_optional=any(read.is_optional for layer in layers for read in layer.reads),
        has_offsets=any(read.offset for layer in layers for read in layer.reads),
        labels=" ".join(read.text for layer in layers for read in layer.reads),
        facts=facts,
        most_parameters=max((each.num_parameters for each in facts), default=0) or 1,
        shows_frames=any(each.frames for each in facts),
        shows_activity=any(each.activity for each in facts),
        warnings=[each for each in facts if each.warning],
        given=_rows_of(request.inputs if request else ()),
        wanted=_rows_of(request.outputs if request else ()),
        request=request,
        program=program,
        times=times,
        curves=_curves(program),
        frames=frames_svg(nnet, build_computation_graph(nnet, request), layers) if request else "",
        lines=[] if program is None else program.listing.splitlines()[:MOST_LINES],
        most_lines=MOST_LINES,
    )


def _context(nnet: Nnet) -> tuple[int, int] | None:
    """The context; None if the network cannot compute any output frame."""
    try:
        return compute_context(nnet)
    except NetworkError:
        return None


def _rows_of(ios: Sequence[IoSpecification]) -> dict[str, str]:
    """The rows of each input or output, such as "17 rows (frames 0 to 48, every 3 frames)"."""
    return {io.name: described_rows(io) for io in ios}


def described_rows(io: IoSpecification) -> str:
    """Returns how many rows there are, and of which frames and sequences."""
    sequences, frames = (np.unique(io.indexes[:, column]).tolist() for column in (0, 1))
    rows = f"{len(io.indexes):,} row{'s' if len(io.indexes) > 1 else ''}"
    if len(frames) == 1:
        which = f"frame {frames[0]}"
    else:
        which = f"frames {frames[0]} to {frames[-1]}"
        steps = set(np.diff(frames).tolist())
        if steps != {1}:
            which += f", every {steps.pop()} frames" if len(steps) == 1 else ", not all of them"
    if len(sequences) > 1:
        which += f", of {len(sequences):,} sequences"
    return f"{rows} ({which})"


def _curves(program: ProgramFacts | None) -> str:
    if program is None:
        return ""
    return memory_svg({"compiled": program.compiled_bytes, "optimized": program.optimized_bytes})
