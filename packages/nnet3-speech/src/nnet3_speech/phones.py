"""The most probable phones of a recording, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError

_POSITIONS = ("_B", "_E", "_I", "_S")


@attrs.frozen
class Phone:
    """A phone in a recording.

    Attributes:
        name: The phone.
        start: Its first moment, in seconds.
        end: The moment after it, in seconds.
        probability: The mean of its posterior over its frames.
    """

    name: str
    start: float
    end: float
    probability: float


def without_positions(
    posteriors: npt.NDArray[np.float32], names: Sequence[str]
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Posteriors of phones without their place in a word: those of "a_B", "a_I", ... are added up.

    Args:
        posteriors: (frames, phones).
        names: The name of each column.

    Returns:
        (frames, fewer phones) float32, and the names of its columns, in the order of their first.
    """
    bare = [name[:-2] if name[-2:] in _POSITIONS and len(name) > 2 else name for name in names]
    columns = {name: number for number, name in enumerate(dict.fromkeys(bare))}
    sums = np.zeros((len(posteriors), len(columns)), np.float32)
    for column, name in enumerate(bare):
        sums[:, columns[name]] += posteriors[:, column]
    return sums, tuple(columns)


def best_phones(
    posteriors: npt.NDArray[np.float32], names: Sequence[str], frame_seconds: float
) -> list[Phone]:
    """The most probable phone of each frame, equal neighbours joined.

    It needs neither a graph nor a decoder, and knows no language: single frames may be wrong.

    Args:
        posteriors: (frames, phones), such as `Model.phone_posteriors` gives.
        names: The name of each column.
        frame_seconds: Seconds from one row to the next.

    Raises:
        SpeechError: the number of names is not that of columns.
    """
    if posteriors.ndim != 2 or posteriors.shape[1] != len(names):
        raise SpeechError(
            f"expected posteriors with a column for each of {len(names)} phones, found "
            f"{' x '.join(map(str, posteriors.shape))}"
        )
    if not len(posteriors):
        return []
    best = posteriors.argmax(axis=1)
    starts = np.flatnonzero(np.diff(best, prepend=-1))
    ends = np.append(starts[1:], len(best))
    return [
        Phone(
            names[best[start]],
            float(start * frame_seconds),
            float(end * frame_seconds),
            float(posteriors[start:end, best[start]].mean()),
        )
        for start, end in zip(starts, ends, strict=True)
    ]
