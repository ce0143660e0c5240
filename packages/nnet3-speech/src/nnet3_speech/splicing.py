"""Frames with their neighbours, and the transform that follows (LDA, `final.mat`)."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import PathOrFile, read_matrix

from nnet3_speech.errors import SpeechError
from nnet3_speech.options import option

Frames = npt.NDArray[np.float32]


@attrs.frozen(kw_only=True)
class SpliceOptions:
    """Which neighbours stand beside a frame: the options of `splice.conf`.

    Attributes:
        left_context: Number of frames before it.
        right_context: Number of frames after it.

    Raises:
        SpeechError: a number is negative.
    """

    left_context: int = option(4, least=0)
    right_context: int = option(4, least=0)


@attrs.frozen(eq=False)
class SplicedTransform:
    """Splices frames, and multiplies them by a matrix.

    Attributes:
        options: How many neighbours.
        matrix: (output_dim, width * dim) float32, or with one column more, which is an offset;
            width is the number of spliced frames, and dim that of columns of a frame.
    """

    options: SpliceOptions
    matrix: Frames = attrs.field(repr=False)

    @classmethod
    def read(cls, options: SpliceOptions, source: PathOrFile) -> SplicedTransform:
        """Reads the matrix.

        Raises:
            ModelFileError: the file cannot be read.
        """
        return cls(options, np.asarray(read_matrix(source), dtype=np.float32))

    @property
    def width(self) -> int:
        """Number of spliced frames."""
        return 1 + self.options.left_context + self.options.right_context

    @property
    def output_dim(self) -> int:
        """Columns of the result."""
        return len(self.matrix)

    def spliced_columns(self, frames: Frames) -> int:
        """Columns of spliced frames, of which some frames are given, (n, dim).

        Raises:
            SpeechError: the matrix is for frames of other columns.
        """
        columns = self.width * int(frames.shape[1])
        if self.matrix.shape[1] not in (columns, columns + 1):
            raise SpeechError(
                f"a transform of {self.matrix.shape[1]} columns does not fit {self.width} spliced "
                f"frames of {frames.shape[1]} columns"
            )
        return columns

    def apply(self, padded: Frames) -> Frames:
        """The results for the frames that have all their neighbours.

        Args:
            padded: (left_context + n + right_context, dim) float32.

        Returns:
            (n, output_dim) float32.

        Raises:
            SpeechError: the matrix is for frames of other columns.
        """
        columns = self.spliced_columns(padded)
        if len(padded) < self.width:
            return np.zeros((0, self.output_dim), np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.width, axis=0)
        spliced = windows.swapaxes(1, 2).reshape(len(windows), -1)  # (n, width * dim)
        transformed: Frames = spliced @ self.matrix[:, :columns].T
        if self.matrix.shape[1] > columns:
            transformed += self.matrix[:, -1]
        return transformed


class Splicer:
    """A transform of frames that come in pieces; the first and last one are repeated at the ends.

    Joined, the results are those of all frames at a time.
    """

    def __init__(self, transform: SplicedTransform) -> None:
        self._transform = transform
        self._kept: Frames | None = None  # None before the first frame

    def __repr__(self) -> str:
        transform = self._transform
        return f"<Splicer: {transform.width} frames -> {transform.output_dim} columns>"

    def push(self, frames: Frames, *, last: bool = False) -> Frames:
        """The results that become ready.

        Args:
            frames: (k, dim) float32, the next frames.
            last: Whether these are the last.

        Returns:
            (n, output_dim) float32.

        Raises:
            SpeechError: see `SplicedTransform.apply`.
        """
        options = self._transform.options
        self._transform.spliced_columns(frames)  # else the context may be more than memory holds
        if self._kept is None:
            if not len(frames):
                return np.zeros((0, self._transform.output_dim), np.float32)
            self._kept = np.repeat(frames[:1], options.left_context, axis=0)
        parts = [self._kept, frames]
        if last:
            newest = frames if len(frames) else self._kept
            parts.append(np.repeat(newest[-1:], options.right_context, axis=0))
        padded = np.concatenate(parts)
        ready = self._transform.apply(padded)
        self._kept = padded[len(ready) :].copy()
        return ready
