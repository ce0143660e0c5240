"""Labels of frames in Kaldi's tables: posteriors and alignments."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import BinaryReader, Reader

Posterior = list[list[tuple[int, float]]]
"""For each frame, pairs of a class and its weight."""

_MAX_FRAMES: Final = 1 << 24
_BLANKS: Final = b" \t\r"


def read_posterior(reader: Reader) -> Posterior:
    """Reads posteriors: in text `[ class weight ... ] [ ... ]` on one line.

    Raises:
        ModelFileError: the file holds something else there.
    """
    if isinstance(reader, BinaryReader):
        return [
            [
                (reader.integer(), reader.real())
                for _ in range(reader.count("classes", maximum=_MAX_FRAMES))
            ]
            for _ in range(reader.count("frames", maximum=_MAX_FRAMES))
        ]
    frames: Posterior = []
    while not _line_ends(reader):
        reader.expect("[")
        frame = []
        reader.skip_blanks()
        while not reader.next_is(b"]"):
            frame.append((reader.integer(), reader.real()))
            reader.skip_blanks()
        reader.position += 1
        frames.append(frame)
    return frames


def _line_ends(reader: Reader) -> bool:
    """Whether the line has no more words; reads its end if so."""
    while reader.remaining and bytes(reader.data[reader.position : reader.position + 1]) in _BLANKS:
        reader.position += 1
    if not reader.remaining:
        return True
    if reader.next_is(b"\n"):
        reader.position += 1
        return True
    return False


def read_alignment(reader: Reader) -> npt.NDArray[np.int64]:
    """Reads the class of each frame, (frames,): in text, integers on one line.

    Raises:
        ModelFileError: the file holds something else there.
    """
    return reader.table_integers().astype(np.int64)
