"""Values by frame: tensors whose rows are the frames of an utterance, but for some at its ends."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from nnet3_runtime_onnx.graph import Tensor

FRAME_AXIS = -3
"""Of values by frame, (sequences, frames, 1, columns)."""

_TO_THE_END = np.iinfo(np.int64).max


@attrs.frozen
class Frames:
    """A value with a row for each frame of an utterance, but for some at its ends.

    Attributes:
        tensor: (1, columns), with sequences and frames as leading axes.
        first: The time of the first row.
        behind: The number of frames behind the last row.
    """

    tensor: Tensor
    first: int
    behind: int

    def moved(self, frames: int) -> Frames:
        """The value at t + frames, as a value at t."""
        return attrs.evolve(self, first=self.first - frames, behind=self.behind + frames)


def moved_axis(operator_type: str, tensor: Tensor, axis: int = FRAME_AXIS) -> Tensor:
    """Returns a tensor with an axis of one row more (Unsqueeze) or less (Squeeze)."""
    name = tensor.graph.node(operator_type, [tensor.name, tensor.graph.integers([axis])])
    return attrs.evolve(tensor, name=name)


def sliced(tensor: Tensor, begin: int, end: int | str | None, step: int = 1) -> Tensor:
    """Returns frames of a tensor.

    Args:
        tensor: The tensor.
        begin: The first frame.
        end: The one behind the last, counted from the end if it is negative; or the name of a
            value; None for the end.
        step: The distance of the frames.
    """
    graph = tensor.graph
    if begin == 0 and end is None and step == 1:
        return tensor
    if not isinstance(end, str):
        end = graph.integers([_TO_THE_END if end is None else end])
    bounds = [graph.integers([begin]), end]
    bounds += [graph.integers([FRAME_AXIS]), graph.integers([step])]
    return attrs.evolve(tensor, name=graph.node("Slice", [tensor.name, *bounds]))


def cut(value: Frames, first: int, behind: int, num_frames: Callable[[], str]) -> Tensor:
    """Returns the rows from a frame on to so many before the end; zeros where none are."""
    before, after = value.first - first, value.behind - behind
    if before <= 0 and after <= 0:
        return sliced(value.tensor, -before, after or None)
    graph, begin = value.tensor.graph, max(-before, 0)
    pads = np.zeros((2, 4), np.int64)
    pads[:, 1] = max(before, 0), max(after, 0)
    padded = graph.node("Pad", [value.tensor.name, graph.integers(pads.reshape(-1))])
    # A value of few frames may have no rows at all, and then more zeros than rows are wanted.
    shift = graph.integers([begin - first - behind])
    # An utterance of fewer frames has none of these rows: a negative end would count from the end.
    end = graph.node("Max", [graph.node("Add", [num_frames(), shift]), graph.integers([0])])
    return sliced(attrs.evolve(value.tensor, name=padded), begin, end)
