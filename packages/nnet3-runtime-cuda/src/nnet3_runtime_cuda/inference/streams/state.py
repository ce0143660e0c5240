"""The state of a sequence between two pushes, as a value that can be stored and sent."""

from __future__ import annotations

from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import Serialized

from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.errors import RunError

IntArray = npt.NDArray[np.int64]


@attrs.frozen(kw_only=True, eq=False)
class NodeRows:
    """Values of a component node that the next chunk takes.

    Attributes:
        node: Its name.
        rows: (rows, dim) float32.
    """

    node: str
    rows: FloatArray


@attrs.frozen(kw_only=True, eq=False)
class StreamState(Serialized):
    """A sequence between two pushes. Times count frames from the first one.

    Attributes:
        digest: Digest of the network and of the options of streams; see `StreamProgram`.
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
    """

    FORMAT: ClassVar[str] = "nnet3.stream-state"
    VERSION: ClassVar[int] = 1

    digest: str
    num_chunks: int
    num_frames: int
    frames: FloatArray
    ivector_times: IntArray
    ivectors: FloatArray
    read_times: IntArray
    read_ivectors: FloatArray
    states: tuple[NodeRows, ...]

    def __attrs_post_init__(self) -> None:
        """Checks conditions that hold for any network."""
        matrices = [self.frames, self.ivectors, self.read_ivectors]
        matrices += [each.rows for each in self.states]
        times = [self.ivector_times, self.read_times]
        if not (
            all(array.ndim == 2 and array.dtype == np.float32 for array in matrices)
            and all(array.ndim == 1 and array.dtype == np.int64 for array in times)
            and len(self.ivector_times) == len(self.ivectors)
            and len(self.read_times) == len(self.read_ivectors)
            and min(self.num_chunks, self.num_frames) >= 0
        ):
            raise RunError("the state of a stream holds an array of another form, or a count < 0")
