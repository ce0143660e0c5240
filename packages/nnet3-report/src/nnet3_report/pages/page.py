"""The page about a model: one HTML file that needs no other, and the request that it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentNode, Nnet
from nnet3_descriptors.components import StatisticsPoolingComponent
from nnet3_descriptors.indexes import T
from nnet3_graph import build_computation_graph, compute_context

from nnet3_report.curves import memory_svg
from nnet3_report.layers import Layer, context_of, layers_of
from nnet3_report.pages.facts import ComponentFacts, component_facts, node_times, program_facts
from nnet3_report.pages.frames_picture import frames_svg
from nnet3_report.pages.rendering import rendered
from nnet3_report.pages.steps_picture import described_frames, step_facts, steps_picture
from nnet3_report.svg import network_svg

SHORTEST_UTTERANCE_WINDOW = 1000
"""A window of at least so many frames takes in whole utterances, as x-vector networks do.

In Kaldi's recipes acoustic models pool over 153 frames before and after at most, networks for
x-vectors over 10,000 frames.
"""


def pooled_frames(nnet: Nnet) -> int:
    """Returns the number of frames in the widest pooling window of whole utterances; or 0."""
    windows = (
        component.left_context + 1 + component.right_context
        for component in nnet.components
        if isinstance(component, StatisticsPoolingComponent)
    )
    widest = max(windows, default=0)
    return widest if widest >= SHORTEST_UTTERANCE_WINDOW else 0


def usual_request(
    nnet: Nnet, frames: int, sequences: int, every: int, *, train: bool
) -> ComputationRequest:
    """A request for every `every`-th frame of the first output, with full context.

    If the network pools over whole utterances, it is a request for one output at t = 0, of an
    utterance of `frames` frames, as in nnet3-xvector-compute. Inputs other than "input" are given
    at t = 0, as i-vectors are.

    Args:
        nnet: The network.
        frames: Number of frames of output, or of the utterance.
        sequences: Number of sequences.
        every: Number of input frames for each row of output.
        train: Whether to ask for the gradient, too.

    Raises:
        ContextError: The network has no finite context.
    """
    left, right = compute_context(nnet)
    names = [node.name for node in nnet.output_nodes]
    output = "output" if "output" in names else names[0]
    if pooled_frames(nnet):
        begin, end, times = 0, frames, range(1)
    else:
        begin, end, times = -left, frames + right, range(0, frames, every)
    wanted = [(n, t, 0) for t in times for n in range(sequences)]
    inputs = [
        IoSpecification.from_range(node.name, begin, end, n=sequences)
        if node.name == "input"
        else IoSpecification.from_range(node.name, 0, 1, n=sequences)
        for node in nnet.input_nodes
    ]
    indexes = np.array(wanted, np.int32)
    return ComputationRequest(
        inputs=inputs,
        outputs=[IoSpecification(name=output, indexes=indexes, has_deriv=train)],
        need_model_derivative=train,
        store_component_stats=train,
    )


MOST_LINES = 3000
"""The most lines of a program on the page."""

MOST_ROWS = 40
"""The most rows of the table of components before it is folded by layer."""

MOST_STEPS = 500
"""The most rows of the table of steps."""

MOST_TIMES = 20
"""The most rows of the table of times."""


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
        times = node_times(nnet, request, program.optimized)
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
        is_of_utterances=request is not None
        and pooled_frames(nnet) > 0
        and all(len(np.unique(io.indexes[:, T])) == 1 for io in request.outputs),
        rows_of=described_rows,
        program=program,
        times=times,
        **_graph_facts(nnet, request, layers),
        curves=memory_svg(program.bytes_held) if program else "",
        most_lines=MOST_LINES,
        most_steps=MOST_STEPS,
        most_times=MOST_TIMES,
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


def described_rows(io: IoSpecification) -> str:
    """Returns the number of rows, their frames and their sequences, as text."""
    sequences, frames = (np.unique(io.indexes[:, column]).tolist() for column in (0, 1))
    rows = f"{len(io.indexes):,} row{'s' if len(io.indexes) > 1 else ''}"
    which = described_frames(frames)
    if len(sequences) > 1:
        which += f", of {len(sequences):,} sequences"
    return f"{rows} ({which})"
