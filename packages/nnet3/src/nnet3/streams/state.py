"""The state of a sequence between two pushes, as a value that can be stored and sent."""

from __future__ import annotations

from numbers import Integral
from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import Serialized, read_only
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray

IntArray = npt.NDArray[np.int64]


def _frozen(values: object) -> object:
    """An array as one that nobody can change; what is no array is left to `StreamState`."""
    return read_only(values) if isinstance(values, np.ndarray) else values


def _is_array(values: object, axes: int, dtype: type) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == axes and values.dtype == dtype


@attrs.frozen(kw_only=True, eq=False)
class NodeRows:
    """Values of a component node that the next chunk takes.

    Attributes:
        node: Its name.
        rows: (rows, dim) float32.
    """

    node: str
    rows: FloatArray = attrs.field(converter=_frozen)


@attrs.frozen(kw_only=True, eq=False)
class StreamState(Serialized):
    """A sequence between two pushes. Times count frames from the first one.

    Its arrays are read-only: those that are not are copied.

    Attributes:
        digest: Digest of the network and of the inputs of its chunks; see `StreamProgram`.
        num_chunks: Chunks that have been computed.
        num_frames: Frames that have come.
        frames: (rows, dim) float32, the last frames, which are still needed.
        ivector_times: (V,) int64, for each given i-vector that is still needed, the time from which
            it is valid; ascending.
        ivectors: (V, ivector_dim) float32.
        read_times: (R,) int64, for each i-vector that chunks have read and the next chunk needs
            again, the time of the first frame that it serves.
        read_ivectors: (R, ivector_dim) float32.
        states: Values of component nodes.

    Raises:
        RunError: an array has another form, or a number is not a count.
    """

    FORMAT: ClassVar[str] = "nnet3.stream-state"
    VERSION: ClassVar[int] = 1

    digest: str
    num_chunks: int
    num_frames: int
    frames: FloatArray = attrs.field(converter=_frozen)
    ivector_times: IntArray = attrs.field(converter=_frozen)
    ivectors: FloatArray = attrs.field(converter=_frozen)
    read_times: IntArray = attrs.field(converter=_frozen)
    read_ivectors: FloatArray = attrs.field(converter=_frozen)
    states: tuple[NodeRows, ...]

    def __attrs_post_init__(self) -> None:
        """Checks conditions that hold for any network."""
        matrices = [self.frames, self.ivectors, self.read_ivectors]
        times = [self.ivector_times, self.read_times]
        if not (
            isinstance(self.states, tuple)
            and all(isinstance(each, NodeRows) for each in self.states)
            and all(_is_array(each.rows, 2, np.float32) for each in self.states)
            and all(_is_array(array, 2, np.float32) for array in matrices)
            and all(_is_array(array, 1, np.int64) for array in times)
            and all(isinstance(count, Integral) for count in (self.num_chunks, self.num_frames))
            and len(self.ivector_times) == len(self.ivectors)
            and len(self.read_times) == len(self.read_ivectors)
            and min(self.num_chunks, self.num_frames) >= 0
        ):
            raise RunError(
                "the state of a stream holds an array of another form, or no count >= 0 of chunks "
                "and frames"
            )
