"""Frames that have come and are still needed."""

from __future__ import annotations

from collections import deque

import numpy as np
from nnet3_runtime_cuda.arrays import FloatArray


class FrameBuffer:
    """The last frames of an endless sequence, numbered from any time on.

    Appended arrays are joined only when a window is taken, so a push takes time in proportion to
    its frames.

    Attributes:
        begin: The time of the first frame that is held.
        end: The time of the frame that comes next.
    """

    def __init__(self, begin: int, dim: int) -> None:
        """Begins empty.

        Args:
            begin: The time of the first frame that will come.
            dim: Columns.
        """
        self.begin = self.end = begin
        self._dim = dim
        self._parts: deque[FloatArray] = deque()

    def append(self, frames: FloatArray) -> None:
        """Adds frames (count, dim), which are not copied."""
        if len(frames):
            self._parts.append(frames)
            self.end += len(frames)

    def repeat_last(self, count: int) -> None:
        """Repeats the last frame `count` times; there must be one."""
        self.append(np.broadcast_to(self._parts[-1][-1], (count, self._dim)))

    def window(self, begin: int, end: int) -> FloatArray:
        """The frames from `begin` to before `end`, (end - begin, dim); all must be held."""
        assert self.begin <= begin <= end <= self.end, "a window lies in the buffer"
        found, time = [], self.begin
        for part in self._parts:
            if time >= end:
                break
            if time + len(part) > begin:
                found.append(part[max(begin - time, 0) : end - time])
            time += len(part)
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty((0, self._dim), np.float32)

    def drop_before(self, time: int) -> None:
        """Forgets the frames before a time."""
        while self._parts and self.begin < time:
            part = self._parts.popleft()
            count = min(len(part), time - self.begin)
            self.begin += count
            if count < len(part):
                rest = part[count:]
                # A copy, so that a few frames do not keep a long array alive.
                whole = rest.base
                is_small = whole is not None and 2 * rest.nbytes < whole.nbytes
                self._parts.appendleft(rest.copy() if is_small else rest)
