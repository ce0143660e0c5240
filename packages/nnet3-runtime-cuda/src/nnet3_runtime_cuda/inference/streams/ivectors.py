"""I-vectors that change while frames come: which one holds when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nnet3_runtime_cuda.arrays import FloatArray


class IvectorTrack:
    """The i-vectors of a sequence: what was given, and what chunks have read.

    Attributes:
        given: (time, i-vector): from this time on it holds; ascending.
        read: By the time of the first frame that they serve, those that chunks were given.
    """

    def __init__(self, dim: int) -> None:
        """Begins without any.

        Args:
            dim: Of the i-vectors; 0 if there are none.
        """
        self._dim = dim
        self.given: list[tuple[int, FloatArray]] = []
        self.read: dict[int, FloatArray] = {}

    def give(self, time: int, ivector: FloatArray) -> None:
        """Has an i-vector hold from a time on, which is not before those of earlier ones."""
        if self.given and self.given[-1][0] == time:
            self.given.pop()
        self.given.append((time, ivector))

    def rows(self, times: Sequence[int], last_frames: Sequence[int]) -> FloatArray:
        """The i-vectors that a chunk is given, (times, ivector_dim).

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
        """What holds at a time; before the first one, that one."""
        found = self.given[0][1]
        for begin, ivector in self.given:
            if begin > time:
                break
            found = ivector
        return found

    def drop_before(self, first_read: int, first_frame: int) -> None:
        """Forgets what is no longer needed.

        Args:
            first_read: Of what chunks have read, what begins before this.
            first_frame: Of what was given, what another i-vector has replaced by this time.
        """
        self.read = {time: row for time, row in self.read.items() if time >= first_read}
        while len(self.given) > 1 and self.given[1][0] <= first_frame:
            del self.given[0]
