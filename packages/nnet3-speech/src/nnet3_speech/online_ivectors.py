"""i-vectors as the frames of an utterance come, as Kaldi's online decoding estimates them.

The posteriors of Gaussians come from features that are normalised, spliced and transformed; the
statistics from those that are only spliced and transformed. Every `ivector_period` frames the
i-vector is estimated anew from all frames so far, and from what is known of the speaker. (Kaldi's
OnlineIvectorFeature.)
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import (
    BinaryWriter,
    PathOrFile,
    TextWriter,
    Writer,
    leave_behind,
    open_reader,
    read_matrix,
    write_atomically,
)

from nnet3_speech.arithmetic import check_finite, computing
from nnet3_speech.errors import SpeechError
from nnet3_speech.gmm import DiagGmm, Posteriors, pruned_posteriors
from nnet3_speech.ivector_extractor import IvectorExtractor
from nnet3_speech.online_cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState
from nnet3_speech.options import read_options
from nnet3_speech.splicing import SplicedTransform, SpliceOptions, Splicer

Frames = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]
Found = TypeVar("Found")

_FRAMES_AT_A_TIME = 1000
"""Longer inputs are taken in pieces, so that memory does not grow with them."""
_LARGEST_MIN_POST = 0.99
_SMALLEST_SQUARE = float(np.finfo(np.float64).tiny)
_RESIDUAL_CHANGE = 1e-4
"""The square of the factor by which a residual changes before it is computed anew."""


@attrs.frozen(kw_only=True)
class IvectorExtractionConfig:
    """The options of ivector-extract-online2, or of `ivector_extractor.conf`.

    Attributes:
        lda_matrix: Path of the transform of spliced features, as for the other paths.
        global_cmvn_stats: Path of the statistics of many speakers.
        cmvn_config: Path of the options of normalisation, `online_cmvn.conf`.
        online_cmvn_iextractor: Whether the statistics, too, come from normalised features.
        splice_config: Path of the options of splicing, `splice.conf`.
        diag_ubm: Path of the Gaussians.
        ivector_extractor: Path of the extractor.
        ivector_period: Frames from an estimate to the next.
        num_gselect: The most Gaussians that count for a frame.
        min_post: Posteriors below this are left out.
        posterior_scale: Multiplies the posteriors.
        max_count: If it is above 0, and the sum of the posteriors is larger, the prior counts more.
        use_most_recent_ivector: Read and without effect, as in ivector-extract-online2.
        greedy_ivector_extractor: Whether an estimate takes all frames that have come.
        max_remembered_frames: The most frames of an utterance that count for the speaker's next.

    Raises:
        SpeechError: a number is out of range.
    """

    lda_matrix: str = ""
    global_cmvn_stats: str = ""
    cmvn_config: str = ""
    online_cmvn_iextractor: bool = False
    splice_config: str = ""
    diag_ubm: str = ""
    ivector_extractor: str = ""
    ivector_period: int = 10
    num_gselect: int = 5
    min_post: float = 0.025
    posterior_scale: float = 0.1
    max_count: float = 0.0
    use_most_recent_ivector: bool = True
    greedy_ivector_extractor: bool = False
    max_remembered_frames: float = 1000.0

    def __attrs_post_init__(self) -> None:
        ranges: dict[str, tuple[bool, str]] = {
            "ivector_period": (self.ivector_period > 0, "at least 1"),
            "num_gselect": (self.num_gselect > 0, "at least 1"),
            "min_post": (0.0 <= self.min_post < 0.5, "from 0 to below 0.5"),
            "posterior_scale": (0.0 < self.posterior_scale <= 1.0, "above 0, at most 1"),
            "max_count": (0.0 <= self.max_count < math.inf, "at least 0"),
            "max_remembered_frames": (0.0 <= self.max_remembered_frames < math.inf, "at least 0"),
        }
        for name, (is_good, expected) in ranges.items():
            if not is_good:
                option = name.replace("_", "-")
                raise SpeechError(f"--{option}: expected {expected}, found {getattr(self, name):g}")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> IvectorExtractionConfig:
        """Reads `ivector_extractor.conf`.

        Raises:
            SpeechError: it cannot be read, or an option is unknown or out of range.
        """
        return read_options(cls, path)


@attrs.frozen(kw_only=True, eq=False)
class AdaptationState:
    """What earlier utterances tell of a speaker (Kaldi's OnlineIvectorExtractorAdaptationState).

    Attributes:
        cmvn: For the normalisation of features.
        prior_offset: The first element of the mean of i-vectors.
        max_count: See `IvectorExtractionConfig`.
        num_frames: The sum of the posteriors.
        quadratic: (ivector_dim, ivector_dim) float64, the inverse covariance of the i-vector.
        linear: (ivector_dim,) float64, that times its mean.
    """

    cmvn: OnlineCmvnState
    prior_offset: float
    max_count: float
    num_frames: float
    quadratic: Array = attrs.field(repr=False)
    linear: Array = attrs.field(repr=False)

    @classmethod
    def read(cls, source: PathOrFile) -> AdaptationState:
        """Reads a file, binary or text.

        Raises:
            ModelFileError: the file cannot be read, or has something else; it says where.
        """
        reader = open_reader(source)
        reader.expect("<OnlineIvectorExtractorAdaptationState>")
        reader.expect("<CmvnState>")
        cmvn = OnlineCmvnState.read(reader)
        reader.expect("<IvectorStats>")
        start = reader.position
        reader.expect("<OnlineIvectorEstimationStats>")
        reader.expect("<PriorOffset>")
        prior_offset = reader.real()
        reader.expect("<MaxCount>")
        max_count = reader.real()
        reader.expect("<NumFrames>")
        num_frames = reader.real()
        reader.expect("<QuadraticTerm>")
        quadratic = reader.symmetric_matrix()
        reader.expect("<LinearTerm>")
        linear = reader.double_vector()
        reader.expect("</OnlineIvectorEstimationStats>")
        reader.expect("</OnlineIvectorExtractorAdaptationState>")
        if len(quadratic) != len(linear) or not len(linear):
            reader.fail(
                "the terms must be of one size",
                at=start,
                expected=f"{len(quadratic)} values",
                found=f"{len(linear)}",
            )
        leave_behind(source, reader)
        return cls(
            cmvn=cmvn,
            prior_offset=prior_offset,
            max_count=max_count,
            num_frames=num_frames,
            quadratic=quadratic,
            linear=linear,
        )

    def write(self, target: str | os.PathLike[str], *, binary: bool = True) -> None:
        """Writes it in Kaldi's form.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        writer: Writer = BinaryWriter() if binary else TextWriter()
        if binary:
            writer.raw(b"\0B")
        writer.token("<OnlineIvectorExtractorAdaptationState>")
        writer.token("<CmvnState>")
        self.cmvn.write(writer)
        writer.token("<IvectorStats>")
        writer.token("<OnlineIvectorEstimationStats>")
        for token, value in (
            ("<PriorOffset>", self.prior_offset),
            ("<MaxCount>", self.max_count),
            ("<NumFrames>", self.num_frames),
        ):
            writer.token(token)
            writer.double(value)
        writer.token("<QuadraticTerm>")
        writer.double_symmetric_matrix(self.quadratic)
        writer.token("<LinearTerm>")
        writer.double_vector(self.linear)
        writer.token("</OnlineIvectorEstimationStats>")
        writer.token("</OnlineIvectorExtractorAdaptationState>")
        write_atomically(target, writer.chunks)

    def limited(self, max_frames: float, posterior_scale: float) -> AdaptationState:
        """The state with the weight of at most some frames; the prior keeps its weight."""
        speaker, cmvn = self.cmvn.speaker, self.cmvn
        if speaker.size and speaker[0, -1] > max_frames:
            cmvn = attrs.evolve(cmvn, speaker=speaker * (max_frames / speaker[0, -1]))
        most = max_frames * posterior_scale
        if self.num_frames <= most:
            return attrs.evolve(self, cmvn=cmvn)
        scale = most / self.num_frames
        before, after = (_prior_scale(count, self.max_count) for count in (self.num_frames, most))
        added = after - scale * before
        linear, quadratic = self.linear * scale, self.quadratic * scale
        linear[0] += self.prior_offset * added
        quadratic[np.diag_indices(len(linear))] += added
        return attrs.evolve(self, cmvn=cmvn, num_frames=most, linear=linear, quadratic=quadratic)


def _prior_scale(count: float, max_count: float) -> float:
    """The weight of the prior: more than 1 where there are more frames than `max_count`."""
    return max(count, max_count) / max_count if max_count > 0.0 else 1.0


@attrs.frozen(kw_only=True, eq=False)
class OnlineIvectorExtractor:
    """All that the estimation of i-vectors reads, ready for many utterances.

    Attributes:
        config: The options.
        cmvn_options: Those of normalisation.
        transform: Splicing and transform.
        global_cmvn_stats: (2, dim + 1) float64.
        diag_ubm: The Gaussians that give posteriors.
        extractor: The extractor.
    """

    config: IvectorExtractionConfig
    cmvn_options: OnlineCmvnOptions
    transform: SplicedTransform
    global_cmvn_stats: Array
    diag_ubm: DiagGmm
    extractor: IvectorExtractor

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
        result = cls(
            config=config,
            cmvn_options=found("cmvn-config", lambda path: read_options(OnlineCmvnOptions, path)),
            transform=found("lda-matrix", lambda path: SplicedTransform.read(splice_options, path)),
            global_cmvn_stats=found(
                "global-cmvn-stats", lambda path: np.asarray(read_matrix(path), dtype=np.float64)
            ),
            diag_ubm=found("diag-ubm", DiagGmm.read),
            extractor=found("ivector-extractor", IvectorExtractor.read),
        )
        result._check(names)
        return result

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str], **options: Any) -> OnlineIvectorExtractor:
        """Reads a folder `ivector` as Vosk's models have: final.ie, final.dubm, final.mat, ...

        Args:
            folder: The folder.
            options: Fields of `IvectorExtractionConfig`, by name.

        Raises:
            SpeechError: see `read`, as for other errors.
        """
        usual = {
            "lda_matrix": "final.mat",
            "global_cmvn_stats": "global_cmvn.stats",
            "cmvn_config": "online_cmvn.conf",
            "splice_config": "splice.conf",
            "diag_ubm": "final.dubm",
            "ivector_extractor": "final.ie",
        }
        paths = {name: os.fspath(Path(folder) / file) for name, file in usual.items()}
        return cls.read(IvectorExtractionConfig(**{**paths, **options}))

    def _check(self, names: dict[str, str]) -> None:
        """Raises SpeechError if the files do not fit each other; it names two of them."""
        self.transform.check(names["lda-matrix"])
        statistics = self.global_cmvn_stats
        if len(statistics) != 2 or statistics.shape[1] != self.dim + 1:
            raise SpeechError(
                f"{names['global-cmvn-stats']}: found {statistics.shape[0]} x "
                f"{statistics.shape[1]} values; the transform {names['lda-matrix']} of "
                f"{self.transform.width} spliced frames wants 2 x {self.dim + 1}"
            )
        for option, dim in (
            ("diag-ubm", self.diag_ubm.dim),
            ("ivector-extractor", self.extractor.dim),
        ):
            if dim != self.transform.output_dim:
                raise SpeechError(
                    f"{names[option]}: it reads {dim} columns; the transform "
                    f"{names['lda-matrix']} makes {self.transform.output_dim}"
                )
        if self.extractor.num_gaussians != self.diag_ubm.num_gaussians:
            raise SpeechError(
                f"{names['ivector-extractor']}: it has {self.extractor.num_gaussians} Gaussians; "
                f"{names['diag-ubm']} has {self.diag_ubm.num_gaussians}"
            )
        if self.extractor.weight_projections.size:
            raise SpeechError(
                f"{names['ivector-extractor']}: its weights depend on the i-vector, which online "
                "estimation cannot take into account"
            )
        OnlineCmvn(self.cmvn_options, OnlineCmvnState(of_all=statistics))

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self.transform.dim

    @property
    def ivector_dim(self) -> int:
        """The size of an i-vector."""
        return self.extractor.ivector_dim

    @property
    def period(self) -> int:
        """Frames from an i-vector to the next."""
        return self.config.ivector_period

    @property
    def no_history(self) -> AdaptationState:
        """The state of a speaker who has not been heard."""
        offset, size = self.extractor.prior_offset, self.ivector_dim
        return AdaptationState(
            cmvn=OnlineCmvnState(of_all=self.global_cmvn_stats),
            prior_offset=offset,
            max_count=self.config.max_count,
            num_frames=0.0,
            quadratic=np.eye(size),
            linear=offset * np.eye(1, size)[0],
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


class OnlineIvectors:
    """The i-vectors of one utterance, whose frames come in pieces.

    Row r is that of the frames from r times the period on, and is estimated from the frames up to
    the first of these. It becomes ready as soon as this frame and those that are spliced with it
    have come. With `greedy_ivector_extractor` all frames that have come count, and the rows that
    become ready together are equal.
    """

    def __init__(
        self, extractor: OnlineIvectorExtractor, state: AdaptationState | None = None
    ) -> None:
        """Begins an utterance.

        Raises:
            SpeechError: the state is of another extractor.
        """
        state = extractor.no_history if state is None else state
        if state.linear.shape != (extractor.ivector_dim,) or (
            state.cmvn.of_all.shape != extractor.global_cmvn_stats.shape
        ):
            raise SpeechError(
                f"the state of the speaker has i-vectors of {len(state.linear)} dimensions and "
                f"features of {state.cmvn.of_all.shape[1] - 1}; the extractor has "
                f"{extractor.ivector_dim} and {extractor.dim}"
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
        with computing("i-vectors"):
            return check_finite(self._push(frames, counts, last), "i-vectors")

    def _push(self, frames: Frames, counts: Array, last: bool) -> Frames:
        greedy = self._extractor.config.greedy_ivector_extractor
        rows = []
        for begin in range(0, max(len(frames), 1), _FRAMES_AT_A_TIME):
            part = slice(begin, begin + _FRAMES_AT_A_TIME)
            is_last = last and begin + _FRAMES_AT_A_TIME >= len(frames)
            self._splice(frames[part], counts[part], is_last)
            if not greedy:
                rows.append(self._estimates())
        self._finished = last
        if greedy:
            rows.append(self._greedy_estimates())
        return np.concatenate(rows)

    def finish(self) -> Frames:
        """The i-vectors that wait for frames that do not come; see `push`."""
        return self.push(np.zeros((0, self._extractor.dim), np.float32), last=True)

    def take_rest(self) -> None:
        """Takes into the statistics the frames behind the last estimate, too."""
        self._take(self._waiting)

    def _checked(
        self, features: npt.ArrayLike, weights: npt.ArrayLike | None
    ) -> tuple[Frames, Array]:
        frames = np.asarray(features, dtype=np.float32)
        if frames.ndim != 2 or frames.shape[1] != self._extractor.dim:
            raise SpeechError(
                f"i-vectors: expected features of {self._extractor.dim} columns, found the shape "
                f"{frames.shape}"
            )
        if not np.isfinite(frames).all():
            raise SpeechError("i-vectors: the features have values that are not finite")
        counts = np.ones(len(frames)) if weights is None else np.asarray(weights, dtype=np.float64)
        if counts.shape != (len(frames),) or not np.isfinite(counts).all():
            raise SpeechError(
                f"i-vectors: expected a finite weight for each of {len(frames)} frames, found the "
                f"shape {counts.shape}"
            )
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
        ready = self._taken + self._waiting
        done = -(-self._taken // period)  # the estimates so far
        wanted = -(-ready // period)
        rows = np.zeros((wanted - done, self._extractor.ivector_dim), np.float32)
        if wanted > done:
            last = (wanted - 1) * period  # the frame of the last one
            self._take(last + 1 - self._taken, rows)
        return rows

    def _greedy_estimates(self) -> Frames:
        """As many rows as the frames that have come ask for, all estimated from all of these."""
        period = self._extractor.period
        done = -(-self._taken // period)
        self._take(self._waiting)
        wanted = -(-self._taken // period)
        if wanted > done:
            self._estimate()
        return np.tile(self._shown(), (wanted - done, 1))

    def _shown(self) -> Frames:
        shown: Frames = self._ivector.astype(np.float32)
        shown[0] -= np.float32(self._before.prior_offset)
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
            self._extractor.diag_ubm.log_likelihoods(normalised), config.num_gselect, min_post
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
        change = _prior_scale(self._num_frames, most) - _prior_scale(before, most)
        if change:
            extractor = self._extractor.extractor
            self._linear[0] += self._before.prior_offset * change
            rows, columns = extractor.lower
            self._quadratic[rows == columns] += change

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


def conjugate_gradient(matrix: Array, target: Array, start: Array, rounds: int = 15) -> Array:
    """Solves matrix x = target by some steps of the method of conjugate gradients.

    (J. Nocedal and S. Wright, "Numerical Optimization", 2006, algorithm 5.2; a step is
    -p'r / p'Ap, and the residual is computed anew when it has changed by a factor of 100. So the
    estimates, which have not converged, are those of Kaldi.)

    Args:
        matrix: (n, n) float64, positive definite.
        target: (n,) float64.
        start: (n,) float64, where it begins.
        rounds: The most steps.

    Returns:
        (n,) float64; the exact solution where the steps made the residual worse.
    """
    estimate = start.copy()
    direction = target - matrix @ estimate
    residual = -direction
    square = first = computed = float(residual @ residual)
    for _ in range(min(rounds, len(target) + 5)):
        product = matrix @ direction
        curvature = float(direction @ product)
        if not curvature:
            break
        step = -float(direction @ residual) / curvature
        estimate += step * direction
        residual += step * product
        next_square = float(residual @ residual)
        if not _RESIDUAL_CHANGE * computed <= next_square <= computed / _RESIDUAL_CHANGE:
            residual = matrix @ estimate - target
            next_square = computed = float(residual @ residual)
        if next_square <= _SMALLEST_SQUARE:
            square = next_square
            break
        direction *= next_square / square
        direction -= residual
        square = next_square
    if square > first + 1e-10 * float(target @ target):
        estimate[:] = np.linalg.solve(matrix, target)
    return estimate
