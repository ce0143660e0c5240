"""Normalisation of features as they come, by the frames before (Kaldi's OnlineCmvn).

Statistics are a matrix (2, dim + 1) float64: the sums of all columns and the number of frames, and
below the sums of squares and a 0.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import Reader, Writer, parse_integer

from nnet3_speech.arithmetic import check_finite, computing
from nnet3_speech.errors import SpeechError

Statistics = npt.NDArray[np.float64]
Frames = npt.NDArray[np.float32]

_LEAST_VARIANCE = 1e-20


@attrs.frozen(kw_only=True)
class OnlineCmvnOptions:
    """The options of `online_cmvn.conf`, which are those of apply-cmvn-online.

    Attributes:
        cmn_window: A frame is normalised by itself and the frames before, this many together.
        speaker_frames: Where these are fewer: the most frames of the speaker's statistics.
        global_frames: Where these are still fewer: the most frames of the global statistics.
        norm_means: Whether the mean becomes 0.
        norm_vars: Whether the variance becomes 1; only with `norm_means`.
        skip_dims: Columns that stay as they are, with colons between.

    Raises:
        SpeechError: the numbers of frames are not in falling order, variances are asked for
            without means, or `skip_dims` is no list.
    """

    cmn_window: int = 600
    speaker_frames: int = 600
    global_frames: int = 200
    norm_means: bool = True
    norm_vars: bool = False
    skip_dims: str = ""

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.global_frames <= self.speaker_frames <= self.cmn_window:
            raise SpeechError(
                "expected 0 <= --global-frames <= --speaker-frames <= --cmn-window, found "
                f"{self.global_frames}, {self.speaker_frames}, {self.cmn_window}"
            )
        if not self.cmn_window:
            raise SpeechError("--cmn-window: expected at least 1, found 0")
        if self.norm_vars and not self.norm_means:
            raise SpeechError("--norm-vars=true needs --norm-means=true")
        _ = self.skipped

    @property
    def skipped(self) -> list[int]:
        """The columns that stay as they are."""
        try:
            columns = [parse_integer(text) for text in self.skip_dims.split(":") if text]
        except ValueError:
            columns = [-1]
        if any(column < 0 for column in columns):
            raise SpeechError(
                "--skip-dims: expected columns with colons between, such as 13:14, found "
                f"{self.skip_dims[:60]!r}"
            )
        return columns


def _empty() -> Statistics:
    return np.zeros((0, 0))


@attrs.frozen(kw_only=True, eq=False)
class OnlineCmvnState:
    """What is known of a speaker before an utterance.

    Attributes:
        speaker: Statistics of the speaker's earlier utterances; (0, 0) for none.
        of_all: Statistics of many speakers.
        frozen: Statistics that each frame is normalised by; (0, 0) if they follow the frames.
    """

    speaker: Statistics = attrs.field(factory=_empty)
    of_all: Statistics
    frozen: Statistics = attrs.field(factory=_empty)

    @classmethod
    def read(cls, reader: Reader) -> OnlineCmvnState:
        """Reads it as a part of a file.

        Raises:
            ModelFileError: the file has something else.
        """
        reader.expect("<OnlineCmvnState>")
        found = {}
        for token, name in _PARTS.items():
            reader.expect(token)
            start = reader.position
            found[name] = statistics = reader.double_matrix()
            if statistics.size and (len(statistics) != 2 or statistics.shape[1] < 2):
                reader.fail(
                    "these are no statistics for normalisation",
                    at=start,
                    expected="2 rows of at least 2 columns",
                    found=f"{statistics.shape[0]} x {statistics.shape[1]}",
                )
        reader.expect("</OnlineCmvnState>")
        return cls(**found)

    def write(self, writer: Writer) -> None:
        """Writes it as a part of a file."""
        writer.token("<OnlineCmvnState>")
        for token, name in _PARTS.items():
            writer.token(token)
            writer.double_matrix(getattr(self, name))
        writer.token("</OnlineCmvnState>")


_PARTS = {"<SpeakerCmvnStats>": "speaker", "<GlobalCmvnStats>": "of_all", "<FrozenState>": "frozen"}


class OnlineCmvn:
    """Normalises the frames of an utterance as they come.

    The statistics of a frame are those of the last `cmn_window` frames with it; while the utterance
    has fewer, some of the speaker's and then of the global ones are added, in proportion.
    """

    def __init__(self, options: OnlineCmvnOptions, state: OnlineCmvnState) -> None:
        """Begins an utterance.

        Raises:
            SpeechError: the global statistics have no frames, or a column to skip is not there.
        """
        dim = state.of_all.shape[1] - 1
        if state.of_all.shape[0] != 2 or dim < 1 or not state.of_all[0, -1] > 0.0:
            raise SpeechError(
                "global statistics for normalisation: expected (2, dim + 1) sums of at least one "
                f"frame, found the shape {state.of_all.shape}"
            )
        if outside := [column for column in options.skipped if column >= dim]:
            raise SpeechError(f"--skip-dims: the features have {dim} columns, found {outside}")
        self._options = options
        self._state = state
        self._sums = np.zeros((2, dim + 1))
        self._window = np.zeros((2, dim + 1))
        self._kept = np.zeros((0, dim), np.float32)

    def __repr__(self) -> str:
        return (
            f"<OnlineCmvn: {self._sums.shape[1] - 1} columns, {self._sums[0, -1]:g} frames so far>"
        )

    @property
    def state(self) -> OnlineCmvnState:
        """The state after the frames so far, for the next utterance of the speaker."""
        speaker = self._state.speaker
        sums = speaker + self._sums if speaker.size else self._sums.copy()
        return attrs.evolve(self._state, speaker=sums)

    def push(self, frames: Frames) -> Frames:
        """Normalises the next frames.

        Args:
            frames: (k, dim) float32.

        Returns:
            (k, dim) float32.

        Raises:
            SpeechError: the statistics are too large or not finite.
        """
        if not len(frames) or not self._options.norm_means:
            self._add(frames)
            return frames
        with computing("online CMVN"):
            return check_finite(self._normalised(frames), "online CMVN")

    def _normalised(self, frames: Frames) -> Frames:
        options = self._options
        extended = np.concatenate((self._kept, frames))
        statistics = self._statistics(extended, len(frames))
        self._add(frames)
        self._window = statistics[-1].copy()
        self._kept = extended[-options.cmn_window :].copy()
        if self._state.frozen.size:
            statistics = np.broadcast_to(self._state.frozen, statistics.shape)
        else:
            statistics = self._smoothed(statistics)
        number = statistics[:, 0, -1:]
        means = statistics[:, 0, :-1] / number
        scales = np.ones_like(means)
        if options.norm_vars:
            variances = statistics[:, 1, :-1] / number - means**2
            scales = 1.0 / np.sqrt(np.maximum(variances, _LEAST_VARIANCE))
        for column in options.skipped:
            means[:, column], scales[:, column] = 0.0, 1.0
        if not options.norm_vars:
            return frames - means.astype(np.float32)
        return frames * scales.astype(np.float32) - (means * scales).astype(np.float32)

    def _add(self, frames: Frames) -> None:
        wide = frames.astype(np.float64)
        self._sums[0, :-1] += wide.sum(axis=0)
        self._sums[1, :-1] += (wide**2).sum(axis=0)
        self._sums[0, -1] += len(frames)

    def _statistics(self, extended: Frames, count: int) -> Statistics:
        """The statistics of the window of each of the last `count` frames, (count, 2, dim + 1)."""
        wide = extended.astype(np.float64)
        terms = np.zeros((len(wide), 2, wide.shape[1] + 1))
        terms[:, 0, :-1], terms[:, 1, :-1], terms[:, 0, -1] = wide, wide**2, 1.0
        changes = terms[-count:].copy()
        leaving = len(wide) - self._options.cmn_window  # frames that leave the window
        if leaving > 0:
            changes[-leaving:] -= terms[:leaving]
        changes[0] += self._window
        return changes.cumsum(axis=0)

    def _smoothed(self, statistics: Statistics) -> Statistics:
        """Statistics with those of the speaker, and of all, that make up for missing frames."""
        options = self._options
        smoothed = statistics.copy()
        sources = [(self._state.speaker, options.speaker_frames, False)] * (
            self._state.speaker.size > 0
        )
        sources.append((self._state.of_all, options.global_frames, True))
        for source, most, has_enough in sources:
            available = source[0, -1]
            missing = np.clip(options.cmn_window - smoothed[:, 0, -1], 0.0, most)
            if not has_enough:
                missing = np.minimum(missing, available)
            if available > 0.0:
                smoothed += (missing / available)[:, None, None] * source
        return smoothed
