"""I-vectors that change while frames come, and the times from which they are valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from nnet3_runtime_cuda.arrays import FloatArray


class IvectorTrack:
    """The i-vectors of a sequence that were given, and those that chunks have read.

    Attributes:
        given: (time, i-vector): an i-vector is valid from its time on; ascending.
        read: The i-vectors that chunks have read, by the time of the first frame that they serve.
    """

    def __init__(self, dim: int) -> None:
        """Begins without any.

        Args:
            dim: Dimension of the i-vectors; 0 if there are none.
        """
        self._dim = dim
        self.given: list[tuple[int, FloatArray]] = []
        self.read: dict[int, FloatArray] = {}

    def give(self, time: int, ivector: FloatArray) -> None:
        """Adds an i-vector that is valid from a time on; times must not fall."""
        if self.given and self.given[-1][0] == time:
            self.given.pop()
        self.given.append((time, ivector))

    def rows(self, times: Sequence[int], last_frames: Sequence[int]) -> FloatArray:
        """The i-vectors for a chunk, (times, ivector_dim).

        Args:
            times: For each of them, the time of the first frame that it serves.
            last_frames: The time at which the i-vector is taken if no chunk has read it before.
        """
        for time, last_frame in zip(times, last_frames, strict=True):
            if time not in self.read:
                self.read[time] = self._at(last_frame)
        return self.matrix(self.read[time] for time in times)

    def matrix(self, ivectors: Iterable[FloatArray]) -> FloatArray:
        """I-vectors as rows, (count, ivector_dim)."""
        rows = [*ivectors]
        return np.array(rows, np.float32).reshape(len(rows), self._dim)

    def _at(self, time: int) -> FloatArray:
        """The i-vector that holds at a time; before the first time, the first i-vector."""
        found = self.given[0][1]
        for begin, ivector in self.given:
            if begin > time:
                break
            found = ivector
        return found

    def drop_before(self, first_read: int, first_frame: int) -> None:
        """Forgets i-vectors that are no longer needed.

        Args:
            first_read: Drops the read i-vectors that serve frames from before this time on.
            first_frame: Drops the given i-vectors that another one has replaced by this time.
        """
        self.read = {time: row for time, row in self.read.items() if time >= first_read}
        while len(self.given) > 1 and self.given[1][0] <= first_frame:
            del self.given[0]
