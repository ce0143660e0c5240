"""The request that a report shows if nobody names one: the usual use of such a network."""

from __future__ import annotations

import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import StatisticsPoolingComponent
from nnet3_graph import compute_context

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
