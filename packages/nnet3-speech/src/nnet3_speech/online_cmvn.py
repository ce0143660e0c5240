"""Normalisation of features as they come, by the frames before (Kaldi's OnlineCmvn).

Statistics are a matrix (2, dim + 1) float64: the sums of all columns and the number of frames, and
below the sums of squares and a 0.
"""

from __future__ import annotations

import re

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import Reader, Writer

from nnet3_speech.arithmetic import check_finite, computing
from nnet3_speech.arrays import feature_matrix
from nnet3_speech.errors import SpeechError
from nnet3_speech.options import option, require

Statistics = npt.NDArray[np.float64]
Frames = npt.NDArray[np.float32]

_LEAST_VARIANCE = 1e-20
_FRAMES_AT_A_TIME = 1000
"""Longer inputs are taken in pieces, so that memory does not grow with them."""


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

    cmn_window: int = option(600, least=1)
    speaker_frames: int = 600
    global_frames: int = 200
    norm_means: bool = True
    norm_vars: bool = False
    skip_dims: str = ""

    def __attrs_post_init__(self) -> None:
        for name, larger in (("speaker_frames", "cmn_window"), ("global_frames", "speaker_frames")):
            most = getattr(self, larger)
            expected = f"0 to --{larger.replace('_', '-')}={most}"
            require(self, name, 0 <= getattr(self, name) <= most, expected)
        is_possible = self.norm_means or not self.norm_vars
        require(self, "norm_vars", is_possible, "--norm-means=true with it")
        is_list = re.fullmatch(r":*([0-9]{1,9}(:+|$))*", self.skip_dims) is not None
        require(self, "skip_dims", is_list, "columns with colons between, such as 13:14")

    @property
    def skipped(self) -> list[int]:
        """The columns that stay as they are."""
        return [int(text) for text in self.skip_dims.split(":") if text]


def _empty() -> Statistics:
    return np.zeros((0, 0))


@attrs.frozen(kw_only=True, eq=False)
class OnlineCmvnState:
    """What is known of a speaker before an utterance.

    Attributes:
        speaker: Statistics of the speaker's earlier utterances; (0, 0) for none.
        of_all: Statistics of many speakers, of one frame or more.
        frozen: Statistics that each frame is normalised by; (0, 0) if they follow the frames.

    Raises:
        SpeechError: the shapes are other ones or differ, or values are not finite.
    """

    speaker: Statistics = attrs.field(factory=_empty)
    of_all: Statistics
    frozen: Statistics = attrs.field(factory=_empty)

    def __attrs_post_init__(self) -> None:
        shape = self.of_all.shape
        if len(shape) != 2 or shape[0] != 2 or shape[1] < 2:
            raise SpeechError(
                "statistics of many speakers for normalisation: expected 2 rows of at least 2 "
                f"columns, found the shape {shape}"
            )
        for name, least in (("of_all", 1.0), ("speaker", 0.0), ("frozen", 1.0)):
            statistics = getattr(self, name)
            if not statistics.size and name != "of_all":
                continue
            if statistics.shape != shape or not np.isfinite(statistics).all():
                raise SpeechError(
                    f"statistics for normalisation, {name}: expected finite values of the shape "
                    f"{shape}, found the shape {statistics.shape}"
                )
            if not statistics[0, -1] >= least:
                raise SpeechError(
                    f"statistics for normalisation, {name}: expected {least:g} frames or more, "
                    f"found {statistics[0, -1]:g}"
                )

    @classmethod
    def read(cls, reader: Reader) -> OnlineCmvnState:
        """Reads it as a part of a file.

        Raises:
            ModelFileError: the file has something else.
        """
        start = reader.position
        reader.expect("<OnlineCmvnState>")
        found = {}
        for token, name in _PARTS.items():
            reader.expect(token)
            found[name] = reader.double_matrix()
        reader.expect("</OnlineCmvnState>")
        try:
            return cls(**found)
        except SpeechError as error:
            reader.fail(str(error), at=start)

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
            SpeechError: a column to skip is not there.
        """
        dim = state.of_all.shape[1] - 1
        if outside := [column for column in options.skipped if column >= dim]:
            raise SpeechError(f"--skip-dims: the features have {dim} columns, found {outside}")
        self._options = options
        self._state = state
        self._sums = np.zeros((2, dim + 1))
        self._window = np.zeros((2, dim + 1))
        self._recent = np.zeros((0, dim), np.float32)

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

    def push(self, frames: npt.ArrayLike) -> Frames:
        """Normalises the next frames.

        Args:
            frames: (k, dim).

        Returns:
            (k, dim) float32.

        Raises:
            SpeechError: they have other columns or values that are not finite, or the statistics
                are too large.
        """
        given = feature_matrix(frames)
        dim = self._sums.shape[1] - 1
        if given.shape[1] != dim:
            raise SpeechError(
                f"features of {given.shape[1]} columns; the statistics for their normalisation "
                f"have {dim}"
            )
        pieces = range(0, len(given), _FRAMES_AT_A_TIME)
        with computing("online CMVN"):
            parts = [self._normalised(given[begin : begin + _FRAMES_AT_A_TIME]) for begin in pieces]
        return check_finite(np.concatenate(parts), "online CMVN") if parts else given

    def _normalised(self, given: Frames) -> Frames:
        options, dim = self._options, given.shape[1]
        terms = np.ones((len(given), 2, dim + 1))
        terms[:, 0, :dim] = given
        terms[:, 1, :dim] = terms[:, 0, :dim] ** 2
        terms[:, 1, dim] = 0.0
        self._sums += terms.sum(axis=0)
        if not options.norm_means:
            return given
        if self._state.frozen.size:
            statistics = np.broadcast_to(self._state.frozen, terms.shape)
        else:
            statistics = self._of_windows(given, terms)
            self._smooth(statistics)
        means = statistics[:, 0, :-1] / statistics[:, 0, -1:]
        scales = np.ones_like(means)
        if options.norm_vars:
            variances = statistics[:, 1, :-1] / statistics[:, 0, -1:] - means**2
            scales = 1.0 / np.sqrt(np.maximum(variances, _LEAST_VARIANCE))
        for column in options.skipped:
            means[:, column], scales[:, column] = 0.0, 1.0
        if not options.norm_vars:
            return given - means.astype(np.float32)
        return given * scales.astype(np.float32) - (means * scales).astype(np.float32)

    def _of_windows(self, frames: Frames, terms: Statistics) -> Statistics:
        """The statistics of the window of each of the next frames.

        Args:
            frames: (k, dim).
            terms: (k, 2, dim + 1), the statistics of each frame alone; changed.
        """
        recent = np.concatenate((self._recent, frames))
        leaving = len(recent) - self._options.cmn_window  # frames that leave the window
        if leaving > 0:
            wide = recent[:leaving].astype(np.float64)
            terms[-leaving:, 0, :-1] -= wide
            terms[-leaving:, 1, :-1] -= wide**2
            terms[-leaving:, 0, -1] -= 1.0
        self._recent = recent[-self._options.cmn_window :].copy()
        terms[0] += self._window
        statistics = terms.cumsum(axis=0)
        self._window = statistics[-1].copy()
        return statistics

    def _smooth(self, statistics: Statistics) -> None:
        """Adds what is known of the speaker, and of all, where a window lacks frames."""
        options, state = self._options, self._state
        counts = statistics[:, 0, -1]  # in rising order
        short = statistics[: int((counts < options.cmn_window).sum())]
        known = state.speaker[0, -1] if state.speaker.size else 0.0
        for source, most in (
            (state.speaker, min(options.speaker_frames, known)),
            (state.of_all, options.global_frames),
        ):
            if most > 0.0:
                missing = np.clip(options.cmn_window - short[:, 0, -1], 0.0, most)
                short += (missing / source[0, -1])[:, None, None] * source
