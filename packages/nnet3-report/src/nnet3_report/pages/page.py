"""The page about a model: one HTML file that needs no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentNode, Nnet
from nnet3_descriptors.indexes import T
from nnet3_graph import build_computation_graph

from nnet3_report.context import context_of
from nnet3_report.layers import Layer, layers_of
from nnet3_report.memory_curve import memory_svg
from nnet3_report.pages.component_facts import ComponentFacts, component_facts
from nnet3_report.pages.frames_picture import frames_svg
from nnet3_report.pages.program_facts import program_facts
from nnet3_report.pages.rendering import rendered
from nnet3_report.pages.step_facts import step_facts
from nnet3_report.pages.steps_picture import described_frames, steps_picture
from nnet3_report.pages.usual_requests import pooled_frames
from nnet3_report.svg import network_svg

if TYPE_CHECKING:
    from nnet3_report.pages.program_facts import ProgramFacts

MOST_LINES = 3000
"""The most lines of a program on the page."""

MOST_ROWS = 40
"""The most rows of the table of components before it is folded by layer."""

MOST_STEPS = 500
"""The most rows of the table of steps."""


def report_page(
    name: str,
    nnet: Nnet,
    request: ComputationRequest | None = None,
    *,
    timed: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> str:
    """Describes a network, and the program of a request.

    Args:
        name: The network's name on the page.
        nnet: The network.
        request: The request; without one, the page is about the network only.
        timed: Whether to run the program, and show the time of each node.
        say: Called with a sentence before each step that can take long.

    Returns:
        An HTML document; it needs no network and no other file.

    Raises:
        NotComputableError: An output of the request cannot be computed.
        RequestError: The request does not fit the network.
        UnsupportedComponentError, DeviceMemoryError: The program to be timed cannot run.
    """
    program = times = None
    if request is not None:
        say("Compiling the request")
        program = program_facts(nnet, request)
    facts = list(component_facts(nnet))
    layers = layers_of(nnet)
    if timed and request is not None and program is not None:
        say("Running the program, to measure the time of its commands")
        from nnet3_report.pages.time_facts import time_facts

        times = time_facts(nnet, request, program.optimized)
    say("Drawing the network")
    return rendered(
        "page.html",
        name=name,
        nnet=nnet,
        context=context_of(nnet),
        pooled_frames=pooled_frames(nnet),
        used=sum(isinstance(node, ComponentNode) for node in nnet.nodes),
        drawing=network_svg(layers),
        key=_key(layers),
        facts=facts,
        groups=_by_layer(facts),
        most_parameters=max((each.num_parameters for each in facts), default=0) or 1,
        shows_nodes=any(each.nodes for each in facts),
        shows_frames=any(each.frames for each in facts),
        shows_activity=any(each.activity for each in facts),
        warnings=[each for each in facts if each.warning],
        request=request,
        is_of_utterances=bool(request and pooled_frames(nnet) and _asks_for_one_frame(request)),
        given=_rows_of(request.inputs if request else ()),
        wanted=_rows_of(request.outputs if request else ()),
        program=program,
        times=times,
        curves=_curves(program),
        **_graph_facts(nnet, request, layers),
        lines=[] if program is None else program.listing[:MOST_LINES],
        most_lines=MOST_LINES,
        most_steps=MOST_STEPS,
    )


def _by_layer(facts: Sequence[ComponentFacts]) -> dict[str, list[ComponentFacts]]:
    """The components by the part of their names before the first point, if there are many."""
    groups: dict[str, list[ComponentFacts]] = {}
    if len(facts) > MOST_ROWS:
        for each in facts:
            groups.setdefault(each.name.partition(".")[0], []).append(each)
    return groups


def _graph_facts(
    nnet: Nnet, request: ComputationRequest | None, layers: Sequence[Layer]
) -> dict[str, Any]:
    """The page's facts about the rows and steps of a request."""
    if request is None:
        return {"frames": "", "steps": (), "picture": None}
    graph = build_computation_graph(nnet, request)
    facts = step_facts(nnet, request, graph)
    return {
        "frames": frames_svg(nnet, graph, layers),
        "steps": facts.steps,
        "picture": steps_picture(nnet, facts, layers),
    }


def _key(layers: Sequence[Layer]) -> dict[str, str | bool]:
    """The elements of the network's drawing that the key explains, with labels of this drawing."""
    number_of = {node: number for number, layer in enumerate(layers) for node in layer.nodes}
    reads = [(number, read) for number, layer in enumerate(layers) for read in layer.reads]

    def label(pattern: str) -> str:
        found = (re.search(pattern, read.text) for _, read in reads)
        return next((match[0] for match in found if match), "")

    return {
        "has_recurrence": any(number_of[read.source] >= number for number, read in reads),
        "has_optional": any(read.is_optional for _, read in reads),
        "has_offsets": any(read.offset for _, read in reads),
        "frame": label(r"at t = -?\d+"),
        "sum": label("added"),
        "factor": label(r"times \S+"),
        "descriptor": label(r".*\(.*"),
    }


def _asks_for_one_frame(request: ComputationRequest) -> bool:
    """Whether each output is wanted at one frame only."""
    return all(len(np.unique(io.indexes[:, T])) == 1 for io in request.outputs)


def _rows_of(ios: Sequence[IoSpecification]) -> dict[str, str]:
    """The rows of each input or output, such as "17 rows (frames 0 to 48, every 3 frames)"."""
    return {io.name: described_rows(io) for io in ios}


def described_rows(io: IoSpecification) -> str:
    """Returns the number of rows, their frames and their sequences, as text."""
    sequences, frames = (np.unique(io.indexes[:, column]).tolist() for column in (0, 1))
    rows = f"{len(io.indexes):,} row{'s' if len(io.indexes) > 1 else ''}"
    which = described_frames(frames)
    if len(sequences) > 1:
        which += f", of {len(sequences):,} sequences"
    return f"{rows} ({which})"


def _curves(program: ProgramFacts | None) -> str:
    if program is None:
        return ""
    return memory_svg({"compiled": program.compiled_bytes, "optimized": program.optimized_bytes})
