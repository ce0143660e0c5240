"""i-vectors as the frames of an utterance come, as Kaldi's online decoding estimates them.

The posteriors of Gaussians come from features that are normalised, spliced and transformed; the
statistics from those that are only spliced and transformed. Every `ivector_period` frames the
i-vector is estimated anew from all frames so far, and from what is known of the speaker. (Kaldi's
OnlineIvectorFeature.)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import read_matrix
from nnet3_descriptors.values import NotCopied, ReadOnlyArrays

from nnet3_speech.cmvn import OnlineCmvn, OnlineCmvnState
from nnet3_speech.conjugate_gradient import conjugate_gradient
from nnet3_speech.errors import SpeechError
from nnet3_speech.feature_options import IvectorExtractionConfig, OnlineCmvnOptions, SpliceOptions
from nnet3_speech.features import SplicedTransform, Splicer
from nnet3_speech.gmm import DiagGmm, Posteriors, pruned_posteriors
from nnet3_speech.ivector_extractor import AdaptationState, IvectorExtractor, prior_scale
from nnet3_speech.options import read_options
from nnet3_speech.values import (
    array_field,
    check_finite,
    computing,
    expect,
    feature_matrix,
    numbers,
    taking,
)

Frames = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]
Found = TypeVar("Found")

_FRAMES_AT_A_TIME = 1000
"""Longer inputs are taken in pieces, so that memory does not grow with them."""
_LARGEST_MIN_POST = 0.99
USUAL_FILES = {
    "lda_matrix": "final.mat",
    "global_cmvn_stats": "global_cmvn.stats",
    "cmvn_config": "online_cmvn.conf",
    "splice_config": "splice.conf",
    "diag_ubm": "final.dubm",
    "ivector_extractor": "final.ie",
}
"""The options that name files, and the names of these in the folders of Kaldi and Vosk."""


def _read_only(sources: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(sources))


@attrs.frozen(kw_only=True, eq=False)
class OnlineIvectorExtractor(ReadOnlyArrays):
    """All that the estimation of i-vectors reads, ready for many utterances.

    Attributes:
        config: The options.
        cmvn_options: Those of normalisation.
        transform: Splicing and transform.
        global_cmvn_stats: (2, dim + 1) float64.
        diag_ubm: The Gaussians that give posteriors.
        extractor: The extractor.
        sources: The files that options such as "lda-matrix" name, for errors.

    Raises:
        SpeechError: two of them do not fit each other.
    """

    config: IvectorExtractionConfig
    cmvn_options: OnlineCmvnOptions
    transform: SplicedTransform
    global_cmvn_stats: Array = array_field(np.float64)
    diag_ubm: DiagGmm
    extractor: IvectorExtractor
    sources: Mapping[str, str] = attrs.field(
        default=MappingProxyType({}), converter=_read_only, repr=False
    )

    @classmethod
    def read(
        cls,
        config: IvectorExtractionConfig,
        place_of: Callable[[str, str], str | os.PathLike[str]] = lambda option, path: path,
    ) -> OnlineIvectorExtractor:
        """Reads the files that options name.

        Args:
            config: The options.
            place_of: The place of a file, by its option, such as "lda-matrix", and the path that
                the option gives ("" for none).

        Raises:
            SpeechError: an option is missing; files do not fit each other.
            ModelFileError: a file cannot be read.
        """
        names: dict[str, str] = {}

        def found(option: str, read: Callable[[Any], Found]) -> Found:
            path = place_of(option, getattr(config, option.replace("-", "_")))
            if not os.fspath(path):
                raise SpeechError(f"i-vectors: option --{option} is missing")
            names[option] = os.fspath(path)
            return read(path)

        splice_options = found("splice-config", lambda path: read_options(SpliceOptions, path))
        return cls(
            config=config,
            cmvn_options=found("cmvn-config", lambda path: read_options(OnlineCmvnOptions, path)),
            transform=found("lda-matrix", lambda path: SplicedTransform.read(splice_options, path)),
            global_cmvn_stats=found(
                "global-cmvn-stats", lambda path: read_matrix(path).astype(np.float64)
            ),
            diag_ubm=found("diag-ubm", DiagGmm.read),
            extractor=found("ivector-extractor", IvectorExtractor.read),
            sources=names,
        )

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str], **options: Any) -> OnlineIvectorExtractor:
        """Reads a folder `ivector` as Vosk's models have: final.ie, final.dubm, final.mat, ...

        Args:
            folder: The folder.
            options: Fields of `IvectorExtractionConfig`, by name.

        Raises:
            SpeechError: see `read`, as for other errors.
        """
        paths = {name: os.fspath(Path(folder) / file) for name, file in USUAL_FILES.items()}
        return cls.read(IvectorExtractionConfig(**{**paths, **options}))

    def __attrs_post_init__(self) -> None:
        statistics, transform, extractor = self.global_cmvn_stats, self.transform, self.extractor
        places = [self._source(name) for name in ("lda-matrix", "global-cmvn-stats", "diag-ubm")]
        lda, stats, ubm = places
        try:
            OnlineCmvn(self.cmvn_options, OnlineCmvnState(of_all=statistics))
        except SpeechError as error:
            raise SpeechError(f"{stats}: {error}") from error
        columns = transform.width * self.dim
        if transform.matrix.shape[1] not in (columns, columns + 1):
            raise SpeechError(
                f"{lda}: the transform has {transform.matrix.shape[1]} columns; {transform.width} "
                f"spliced frames of the {self.dim} columns of {stats} want {columns}, or one more"
            )
        for option, dim in (("diag-ubm", self.diag_ubm.dim), ("ivector-extractor", extractor.dim)):
            if dim != transform.output_dim:
                raise SpeechError(
                    f"{self._source(option)}: it reads {dim} columns; the transform {lda} makes "
                    f"{transform.output_dim}"
                )
        name = self._source("ivector-extractor")
        if extractor.num_gaussians != self.diag_ubm.num_gaussians:
            raise SpeechError(
                f"{name}: it has {extractor.num_gaussians} Gaussians; {ubm} has "
                f"{self.diag_ubm.num_gaussians}"
            )
        if extractor.weight_projections.size:
            raise SpeechError(
                f"{name}: its weights depend on the i-vector, which online estimation cannot take "
                "into account"
            )

    def _source(self, option: str) -> str:
        return self.sources.get(option, f"--{option}")

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return int(self.global_cmvn_stats.shape[1]) - 1

    @property
    def ivector_dim(self) -> int:
        """The size of an i-vector."""
        return self.extractor.ivector_dim

    @property
    def period(self) -> int:
        """Frames from an i-vector to the next."""
        return self.config.ivector_period

    @cached_property
    def digest(self) -> str:
        """A digest of all arrays, which is kept in the states of speakers."""
        ubm, extractor = self.diag_ubm, self.extractor
        small = self.transform.options, float(extractor.prior_offset)
        digest = hashlib.sha256(repr(small).encode())
        for array in (
            *(self.transform.matrix, self.global_cmvn_stats),
            *(ubm.weights, ubm.means_invvars, ubm.inv_vars),
            *(extractor.projections, extractor.inverse_covariances),
        ):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def no_history(self) -> AdaptationState:
        """The state of a speaker who has not been heard."""
        # In single precision, as in the files that Kaldi writes of it.
        offset, size = float(np.float32(self.extractor.prior_offset)), self.ivector_dim
        return AdaptationState(
            cmvn=OnlineCmvnState(of_all=self.global_cmvn_stats),
            prior_offset=offset,
            max_count=self.config.max_count,
            num_frames=0.0,
            quadratic=np.eye(size),
            linear=offset * np.eye(1, size)[0],
        )

    def has(self, state: AdaptationState) -> bool:
        """Whether a state is of this extractor, as far as can be told of one from a file."""
        if state.model:
            return state.model == self.digest
        return state.cmvn.is_of(self.global_cmvn_stats) and bool(
            np.isclose(state.prior_offset, self.extractor.prior_offset, rtol=1e-5, atol=0.0)
        )

    def compute(
        self, features: npt.ArrayLike, state: AdaptationState | None = None
    ) -> tuple[Frames, AdaptationState]:
        """The i-vectors of a whole utterance.

        Args:
            features: (frames, dim), without normalisation.
            state: What is known of the speaker.

        Returns:
            (rows, ivector_dim) float32, one for every `period` frames; and the state after it.

        Raises:
            SpeechError: see `OnlineIvectors`.
        """
        utterance = OnlineIvectors(self, state)
        return utterance.push(features, last=True), utterance.state


class OnlineIvectors(NotCopied):
    """The i-vectors of one utterance, whose frames come in pieces.

    Row r is that of the frames from r times the period on, and is estimated from the frames up to
    the first of these. It becomes ready as soon as this frame and those that are spliced with it
    have come. With `greedy_ivector_extractor` all frames that have come count, and the rows that
    become ready together are equal.
    """

    _instead = "begin another one with its state"

    def __init__(
        self, extractor: OnlineIvectorExtractor, state: AdaptationState | None = None
    ) -> None:
        """Begins an utterance.

        Raises:
            SpeechError: the state is of another extractor.
        """
        is_known = state is not None
        state = extractor.no_history if state is None else state
        expect(state, "the state of the speaker", AdaptationState)
        if state.linear.shape != (extractor.ivector_dim,) or (
            state.cmvn.of_all.shape != extractor.global_cmvn_stats.shape
        ):
            raise SpeechError(
                f"the state of the speaker has i-vectors of {len(state.linear)} dimensions and "
                f"features of {state.cmvn.of_all.shape[1] - 1}; the extractor has "
                f"{extractor.ivector_dim} and {extractor.dim}"
            )
        if is_known and not extractor.has(state):
            raise SpeechError(
                "the state of the speaker: expected one of this extractor, found one of another"
            )
        self._extractor = extractor
        self._before = state
        self._cmvn = OnlineCmvn(extractor.cmvn_options, state.cmvn)
        self._raw, self._normalised = (Splicer(extractor.transform) for _ in range(2))
        self._linear = state.linear.copy()
        self._quadratic = state.quadratic[extractor.extractor.lower]
        self._num_frames = state.num_frames
        self._ivector = state.prior_offset * np.eye(1, extractor.ivector_dim)[0]
        self._pending: list[tuple[Frames, Frames, Array]] = []
        self._given = np.zeros(0)
        self._taken = 0  # frames that are part of the statistics
        self._waiting = 0  # frames that are spliced and wait for the next estimate
        self._rows = 0  # i-vectors that have become ready
        self._finished = False

    def __repr__(self) -> str:
        extractor = self._extractor
        return (
            f"<OnlineIvectors: {extractor.dim} columns -> {extractor.ivector_dim}, every "
            f"{extractor.period} frames, {self._taken + self._waiting} frames so far>"
        )

    @property
    def state(self) -> AdaptationState:
        """What is known of the speaker after the last estimate, for the next utterance."""
        config, extractor = self._extractor.config, self._extractor.extractor
        state = AdaptationState(
            cmvn=self._cmvn.state,
            prior_offset=self._before.prior_offset,
            max_count=self._before.max_count,
            num_frames=self._num_frames,
            quadratic=extractor.unpacked(self._quadratic),
            linear=self._linear.copy(),
            model=self._extractor.digest,
        )
        return state.limited(config.max_remembered_frames, config.posterior_scale)

    @property
    def objective_change(self) -> float:
        """By how much the last i-vector is better than the prior's mean, for each frame."""
        if not self._num_frames:
            return 0.0
        quadratic = self._extractor.extractor.unpacked(self._quadratic)
        default = self._before.prior_offset * np.eye(1, len(self._linear))[0]
        objectives = [
            float(each @ self._linear - 0.5 * each @ quadratic @ each)
            for each in (self._ivector, default)
        ]
        return (objectives[0] - objectives[1]) / self._num_frames

    def push(
        self,
        features: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        *,
        last: bool = False,
    ) -> Frames:
        """Takes the next frames.

        Args:
            features: (k, dim), without normalisation.
            weights: (k,), how much each frame counts; all of them count 1 by default.
            last: Whether these are the last frames.

        Returns:
            (rows, ivector_dim) float32, the i-vectors that become ready.

        Raises:
            SpeechError: the features have other columns or values that are not finite, the weights
                do not fit, the last frames have come before, or values become too large.
        """
        frames, counts = self._checked(features, weights)
        if self._finished:
            raise SpeechError("the last frames of the utterance have come before")
        with taking(self), computing("i-vectors"):
            return check_finite(self._push(frames, counts, last), "i-vectors")

    def _push(self, frames: Frames, counts: Array, last: bool) -> Frames:
        period, done = self._extractor.period, self._rows
        is_greedy = self._extractor.config.greedy_ivector_extractor
        parts = []
        for begin in range(0, max(len(frames), 1), _FRAMES_AT_A_TIME):
            part = slice(begin, begin + _FRAMES_AT_A_TIME)
            is_last = last and begin + _FRAMES_AT_A_TIME >= len(frames)
            self._splice(frames[part], counts[part], is_last)
            if is_greedy:
                self._take(self._waiting)
            else:
                parts.append(self._estimates())
        self._finished = last
        if not is_greedy:
            return np.concatenate(parts)
        self._rows = -(-self._taken // period)
        if self._rows > done:
            self._estimate()
        return np.tile(self._shown(), (self._rows - done, 1))

    def finish(self) -> Frames:
        """The i-vectors that wait for frames that do not come; see `push`."""
        return self.push(np.zeros((0, self._extractor.dim), np.float32), last=True)

    def take_rest(self) -> None:
        """Takes into the statistics the frames behind the last estimate, too.

        This ends the utterance, as `finish` does.
        """
        with taking(self):
            self._finished = True
            self._take(self._waiting)

    def _checked(
        self, features: npt.ArrayLike, weights: npt.ArrayLike | None
    ) -> tuple[Frames, Array]:
        frames = feature_matrix(features)
        if frames.shape[1] != self._extractor.dim:
            raise SpeechError(
                f"i-vectors: expected features of {self._extractor.dim} columns, found the shape "
                f"{frames.shape}"
            )
        counts = np.ones(len(frames))
        if weights is not None:
            counts = numbers(weights, "weights of frames", counts.shape, kinds="biuf")
        return frames, counts

    def _splice(self, frames: Frames, counts: Array, last: bool) -> None:
        raw = self._raw.push(frames, last=last)
        normalised = self._normalised.push(self._cmvn.push(frames), last=last)
        self._given = np.concatenate((self._given, counts))
        if len(raw):
            self._pending.append((raw, normalised, self._given[: len(raw)]))
            self._given = self._given[len(raw) :]
            self._waiting += len(raw)

    def _estimates(self) -> Frames:
        """The estimates for which there are frames enough."""
        period = self._extractor.period
        done, self._rows = self._rows, -(-(self._taken + self._waiting) // period)
        rows = np.zeros((self._rows - done, self._extractor.ivector_dim), np.float32)
        if len(rows):
            last = (self._rows - 1) * period  # the frame of the last one
            self._take(last + 1 - self._taken, rows)
        return rows

    def _shown(self) -> Frames:
        shown: Frames = self._ivector.astype(np.float32)
        shown[0] = float(shown[0]) - self._extractor.extractor.prior_offset
        return shown

    def _take(self, count: int, rows: Frames | None = None) -> None:
        """Takes frames into the statistics, with an estimate after each that begins a period.

        Args:
            count: Number of frames.
            rows: (n, ivector_dim), receives these estimates, if they are wanted.
        """
        if not count:
            return
        raw, normalised, counts = (
            np.concatenate(parts) for parts in zip(*self._pending, strict=True)
        )
        self._pending = [(raw[count:], normalised[count:], counts[count:])]
        self._waiting -= count
        raw, normalised, counts = raw[:count], normalised[:count], counts[:count]
        config = self._extractor.config
        posteriors = self._posteriors(normalised, counts)
        source = normalised if config.online_cmvn_iextractor else raw
        period = config.ivector_period
        numbers = np.zeros(count, np.int64)
        if rows is not None:
            # The estimate of each frame is that of the first period that begins at it or later.
            numbers = -(-(self._taken + np.arange(count)) // period)
            numbers -= numbers[0]
        self._taken += count
        self._accumulate(source, posteriors, numbers, rows)

    def _posteriors(self, normalised: Frames, counts: Array) -> Posteriors:
        """Scaled and weighted posteriors of frames."""
        config = self._extractor.config
        magnitudes = np.where(counts == 0.0, 1.0, np.abs(counts))
        min_post = np.minimum(config.min_post / magnitudes, _LARGEST_MIN_POST)
        found = pruned_posteriors(
            self._extractor.diag_ubm.log_likelihoods(normalised),
            config.num_gselect,
            min_post,
            first_frame=self._taken,
        )
        values = found.values * (config.posterior_scale * counts[found.frames])
        return attrs.evolve(found, values=values)

    def _accumulate(
        self,
        features: Frames,
        posteriors: Posteriors,
        numbers: npt.NDArray[np.int64],
        rows: Frames | None,
    ) -> None:
        """Adds frames to the statistics, estimate by estimate."""
        extractor = self._extractor.extractor
        total = int(numbers[-1]) + 1
        # Frames of one estimate with one Gaussian are added up first.
        keys = numbers[posteriors.frames] * extractor.num_gaussians + posteriors.gaussians
        pairs, inverse = np.unique(keys, return_inverse=True)
        weights = np.bincount(inverse, posteriors.values, len(pairs))
        sums = np.zeros((len(pairs), features.shape[1]))
        np.add.at(sums, inverse, posteriors.values[:, None] * features[posteriors.frames])
        estimates, gaussians = np.divmod(pairs, extractor.num_gaussians)
        linear = self._linear_terms(sums, gaussians)
        begins = np.searchsorted(estimates, np.arange(total + 1))
        for number in range(total):
            part = slice(begins[number], begins[number + 1])
            self._linear += linear[part].sum(axis=0)
            self._quadratic += weights[part] @ extractor.quadratic_terms[gaussians[part]]
            self._count(float(weights[part].sum()))
            if rows is not None:
                self._estimate()
                rows[number] = self._shown()

    def _linear_terms(self, sums: Array, gaussians: npt.NDArray[np.int64]) -> Array:
        """The linear term of each sum of features, (p, ivector_dim): a product a Gaussian."""
        factors = self._extractor.extractor.linear_factors
        order = np.argsort(gaussians, kind="stable")
        terms = np.empty((len(sums), factors.shape[2]))
        borders = np.flatnonzero(np.diff(gaussians[order], prepend=-1))
        for members in np.split(order, borders[1:]):
            if len(members):
                terms[members] = sums[members] @ factors[gaussians[members[0]]]
        return terms

    def _count(self, weight: float) -> None:
        """Counts posteriors; beyond `max_count` the prior counts more."""
        before = self._num_frames
        self._num_frames += weight
        most = self._before.max_count
        change = prior_scale(self._num_frames, most) - prior_scale(before, most)
        if change:
            extractor = self._extractor.extractor
            self._linear[0] += self._before.prior_offset * change
            self._quadratic[extractor.diagonal] += change

    def _estimate(self) -> None:
        """Estimates the i-vector anew, beginning with the last estimate."""
        if self._num_frames > 0.0:
            quadratic = self._extractor.extractor.unpacked(self._quadratic)
            start = self._ivector
            if start[0] == 0.0:
                start = start + self._before.prior_offset * np.eye(1, len(start))[0]
            self._ivector = conjugate_gradient(quadratic, self._linear, start)
        else:
            self._ivector = self._before.prior_offset * np.eye(1, len(self._linear))[0]
