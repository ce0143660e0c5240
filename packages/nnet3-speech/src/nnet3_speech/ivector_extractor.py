"""The i-vector extractor (`final.ie`): a subspace of the means of a mixture of Gaussians.

The mean of Gaussian i is M_i x for an i-vector x, whose prior is normal with unit covariance and
the mean (offset, 0, 0, ...). So x of frames with posteriors has a normal distribution, whose
inverse covariance and linear term are sums over Gaussians. (N. Dehak and others, "Front-end factor
analysis for speaker verification", IEEE Trans. Audio, Speech, and Language Processing 19, 2011.)
`AdaptationState` keeps between utterances what these tell of a speaker.
"""

from __future__ import annotations

import os
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import PathOrFile, leave_behind, new_writer, open_reader
from nnet3_descriptors.values import ReadOnlyArrays

from nnet3_speech.cmvn import OnlineCmvnState
from nnet3_speech.errors import SpeechError
from nnet3_speech.gmm import Posteriors, read_alike, read_triangles
from nnet3_speech.values import array_field, check_finite, computing, feature_matrix

Array = npt.NDArray[np.float64]

_MOST_RATIO = 32
"""The most i-vector dimensions for each of the features, so that what is derived from a file is not
much larger than the file: 20 or less in use."""
_LARGEST = float(np.finfo(np.float32).max)
"""The largest prior offset: the states of speakers have it in single precision."""
_MOST_WEIGHT_ROUNDS = 4
_LEAST_CHANGE = 0.1
"""Estimates whose weights depend on the i-vector are repeated, as in Kaldi, until they change by
less."""


@attrs.frozen(kw_only=True, eq=False)
class IvectorExtractor(ReadOnlyArrays):
    """A trained extractor. Its arrays are read-only.

    Attributes:
        weight_projections: (gaussians, ivector_dim) float64, what makes the logarithms of the
            weights from an i-vector; (0, 0) if weights do not depend on it.
        weights: (gaussians,) float64, the weights if they do not depend on it; else (0,).
        projections: (gaussians, dim, ivector_dim) float64, M.
        inverse_covariances: (gaussians, dim, dim) float64.
        prior_offset: The first element of the mean of i-vectors.
    """

    weight_projections: Array = array_field(np.float64, repr=False)
    weights: Array = array_field(np.float64, repr=False)
    projections: Array = array_field(np.float64, repr=False)
    inverse_covariances: Array = array_field(np.float64, repr=False)
    prior_offset: float

    def __attrs_post_init__(self) -> None:
        count, dim, ivector_dim = self.projections.shape
        if not self.projections.size or self.inverse_covariances.shape != (count, dim, dim):
            raise SpeechError(
                "an i-vector extractor: expected a projection and an inverse covariance for each "
                f"Gaussian, found the shapes {self.projections.shape} and "
                f"{self.inverse_covariances.shape}"
            )
        if self.weight_projections.size and self.weight_projections.shape != (count, ivector_dim):
            raise SpeechError(
                f"an i-vector extractor: expected projections of weights of the shape "
                f"{(count, ivector_dim)}, found {self.weight_projections.shape}"
            )
        if ivector_dim > _MOST_RATIO * dim:
            raise SpeechError(
                f"an i-vector extractor: expected i-vectors of at most {_MOST_RATIO} times the "
                f"{dim} columns of the features, found {ivector_dim}"
            )
        arrays = self.weight_projections, self.projections, self.inverse_covariances
        if not all(np.isfinite(each).all() for each in arrays):
            raise SpeechError("an i-vector extractor: found values that are not finite")
        if not abs(self.prior_offset) <= _LARGEST:
            raise SpeechError(
                "an i-vector extractor: expected a prior offset of single precision, found "
                f"{self.prior_offset}"
            )

    @property
    def num_gaussians(self) -> int:
        """Number of Gaussians."""
        return len(self.projections)

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return int(self.projections.shape[1])

    @property
    def ivector_dim(self) -> int:
        """The size of an i-vector."""
        return int(self.projections.shape[2])

    # ---- files ----

    @classmethod
    def read(cls, source: PathOrFile) -> IvectorExtractor:
        """Reads a file, binary or text.

        Args:
            source: A path, or a file that is open for reading bytes.

        Raises:
            ModelFileError: the file cannot be read, or holds no extractor; it says where.
        """
        reader = open_reader(source)
        start = reader.position
        reader.expect("<IvectorExtractor>")
        reader.expect("<w>")
        weight_projections = reader.double_matrix()
        reader.expect("<w_vec>")
        weights = reader.double_vector()
        reader.expect("<M>")
        count = reader.count("Gaussians", maximum=1 << 24, least_bytes=4)
        projections = read_alike(reader, count)
        reader.expect("<SigmaInv>")
        inverse_covariances = read_triangles(reader, count, np.float64)
        reader.expect("<IvectorOffset>")
        prior_offset = reader.real()
        reader.expect("</IvectorExtractor>")
        leave_behind(source, reader)
        try:
            return cls(
                weight_projections=weight_projections,
                weights=weights,
                projections=projections,
                inverse_covariances=inverse_covariances,
                prior_offset=prior_offset,
            )
        except SpeechError as error:
            reader.fail(str(error), at=start)

    def write(self, target: str | os.PathLike[str], *, binary: bool = True) -> None:
        """Writes it in Kaldi's form: a binary file that Kaldi wrote comes back byte for byte.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        writer = new_writer(binary=binary)
        writer.token("<IvectorExtractor>")
        writer.token("<w>")
        writer.double_matrix(self.weight_projections)
        writer.token("<w_vec>")
        writer.double_vector(self.weights)
        writer.token("<M>")
        writer.integer(self.num_gaussians)
        for projection in self.projections:
            writer.double_matrix(projection)
        writer.token("<SigmaInv>")
        for inverse in self.inverse_covariances:
            writer.double_symmetric_matrix(inverse)
        writer.token("<IvectorOffset>")
        writer.double(self.prior_offset)
        writer.token("</IvectorExtractor>")
        writer.store(target)

    # ---- terms of the distribution ----

    @cached_property
    def linear_factors(self) -> Array:
        """(gaussians, dim, ivector_dim), inverse covariance times M: made on first use."""
        factors: Array = self.inverse_covariances @ self.projections
        return factors

    @cached_property
    def lower(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Row and column of each element of a packed symmetric matrix of i-vectors."""
        return np.tril_indices(self.ivector_dim)

    @cached_property
    def diagonal(self) -> npt.NDArray[np.int64]:
        """The places of its diagonal in the packed matrix, (ivector_dim,)."""
        rows = np.arange(self.ivector_dim, dtype=np.int64)
        places: npt.NDArray[np.int64] = rows * (rows + 3) // 2
        return places

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        """The place of each element of the whole matrix in the packed one, (size, size)."""
        one, other = np.indices((self.ivector_dim,) * 2)
        larger = np.maximum(one, other)
        places: npt.NDArray[np.int64] = larger * (larger + 1) // 2 + np.minimum(one, other)
        return places

    @cached_property
    def quadratic_terms(self) -> Array:
        """(gaussians, ivector_dim (ivector_dim + 1) / 2), M' inverse covariance M, packed.

        They are made on first use, and take more memory than the file: for 512 Gaussians and
        i-vectors of 100, 21 MB.
        """
        places = np.ravel_multi_index(self.lower, (self.ivector_dim,) * 2)
        packed = np.empty((self.num_gaussians, len(places)))
        # One by one: NumPy multiplies a stack of transposed matrices without BLAS.
        for number, (projection, factors) in enumerate(
            zip(self.projections, self.linear_factors, strict=True)
        ):
            packed[number] = (projection.T @ factors).take(places)
        return packed

    def unpacked(self, packed: Array) -> Array:
        """The symmetric matrix of packed elements, (ivector_dim, ivector_dim)."""
        matrix: Array = packed.take(self._places)
        return matrix

    # ---- i-vectors of whole recordings ----

    def ivector(
        self,
        features: npt.ArrayLike,
        posteriors: Posteriors,
        *,
        acoustic_weight: float = 1.0,
        max_count: float = 0.0,
    ) -> Array:
        """The i-vector of an utterance, or of a speaker's utterances together, as ivector-extract.

        Args:
            features: (frames, dim), spliced and transformed.
            posteriors: Those of the Gaussians for each frame.
            acoustic_weight: Multiplies the posteriors.
            max_count: If it is above 0, the sum of the posteriors is scaled down to it.

        Returns:
            (ivector_dim,) float64, without the prior's offset.

        Raises:
            SpeechError: the features have other columns than the extractor or are not finite, or a
                posterior is of a frame or a Gaussian that is not there; or values become too large.
        """
        frames = feature_matrix(features)
        if frames.shape[1] != self.dim:
            raise SpeechError(
                f"the i-vector extractor reads {self.dim} columns, found features of the shape "
                f"{frames.shape}"
            )
        for what, numbers, count in (
            ("frame", posteriors.frames, len(frames)),
            ("Gaussian", posteriors.gaussians, self.num_gaussians),
        ):
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
                raise SpeechError(
                    f"posteriors: expected a {what} from 0 to {count - 1}, found "
                    f"{numbers.min()} to {numbers.max()}"
                )
        with computing("i-vector"):
            found = self._ivector(frames, posteriors, acoustic_weight, max_count)
            return check_finite(found, "i-vector")

    def _ivector(
        self,
        frames: npt.NDArray[np.float32],
        posteriors: Posteriors,
        acoustic_weight: float,
        max_count: float,
    ) -> Array:
        counts: Array = np.zeros(self.num_gaussians)
        np.add.at(counts, posteriors.gaussians, posteriors.values)
        sums = np.zeros((self.num_gaussians, self.dim))
        np.add.at(
            sums, posteriors.gaussians, posteriors.values[:, None] * frames[posteriors.frames]
        )
        scale = acoustic_weight
        if max_count > 0.0 and counts.sum() * scale > max_count:
            scale = max_count / counts.sum()
        counts, sums = counts * scale, sums * scale
        linear = np.einsum("gds,gd->s", self.linear_factors, sums, optimize=True)
        linear[0] += self.prior_offset
        quadratic = self.unpacked(counts @ self.quadratic_terms)
        quadratic[np.diag_indices(self.ivector_dim)] += 1.0
        ivector = np.linalg.solve(quadratic, linear)
        if self.weight_projections.size:
            ivector = self._with_weights(ivector, counts, linear, quadratic)
        ivector[0] -= self.prior_offset
        return ivector

    def _with_weights(
        self, ivector: Array, counts: Array, linear: Array, quadratic: Array
    ) -> Array:
        """The estimate if weights depend on the i-vector: quadratic approximations in turn.

        (D. Povey and others, "The subspace Gaussian mixture model", Computer Speech and Language
        25, 2011, eq. 58.)
        """
        projections = self.weight_projections
        for _ in range(_MOST_WEIGHT_ROUNDS):
            logs = projections @ ivector
            weights = np.exp(logs - logs.max())
            expected = counts.sum() * weights / weights.sum()
            largest = np.maximum(counts, expected)
            this_linear = linear + (counts - expected + largest * logs) @ projections
            this_quadratic = quadratic + (projections * largest[:, None]).T @ projections
            before, ivector = ivector, np.linalg.solve(this_quadratic, this_linear)
            if np.linalg.norm(ivector - before) < _LEAST_CHANGE:
                break
        return ivector


@attrs.frozen(kw_only=True, eq=False)
class AdaptationState(ReadOnlyArrays):
    """What earlier utterances tell of a speaker (Kaldi's OnlineIvectorExtractorAdaptationState).

    Its arrays are read-only.

    Attributes:
        cmvn: For the normalisation of features.
        prior_offset: The first element of the mean of i-vectors.
        max_count: See `IvectorExtractionConfig`.
        num_frames: The sum of the posteriors.
        quadratic: (ivector_dim, ivector_dim) float64, the inverse covariance of the i-vector.
        linear: (ivector_dim,) float64, that times its mean.
        model: `OnlineIvectorExtractor.digest` of the extractor that it is of; "" where this is not
            known, as after `read`: Kaldi's files have no place for it.

    Raises:
        SpeechError: the shapes do not fit each other, a number is out of range, or values are not
            finite.
    """

    cmvn: OnlineCmvnState
    prior_offset: float
    max_count: float
    num_frames: float
    quadratic: Array = array_field(np.float64, repr=False)
    linear: Array = array_field(np.float64, repr=False)
    model: str = ""

    def __attrs_post_init__(self) -> None:
        size = self.linear.size
        shapes = self.linear.shape, self.quadratic.shape
        if not size or shapes != ((size,), (size, size)):
            raise SpeechError(
                "the state of a speaker: expected a linear term of at least one value and a square "
                f"quadratic term of its size, found the shapes {shapes[0]} and {shapes[1]}"
            )
        numbers = self.prior_offset, self.max_count, self.num_frames
        if not all(np.isfinite(each).all() for each in (self.linear, self.quadratic, numbers)):
            raise SpeechError("the state of a speaker has values that are not finite")
        if self.max_count < 0.0:
            raise SpeechError(
                f"the state of a speaker: expected max_count >= 0, found {self.max_count:g}"
            )

    @classmethod
    def read(cls, source: PathOrFile) -> AdaptationState:
        """Reads a file, binary or text.

        Raises:
            ModelFileError: the file cannot be read, or has something else; it says where.
        """
        reader = open_reader(source)
        start = reader.position
        reader.expect("<OnlineIvectorExtractorAdaptationState>")
        reader.expect("<CmvnState>")
        cmvn = OnlineCmvnState.read(reader)
        reader.expect("<IvectorStats>")
        reader.expect("<OnlineIvectorEstimationStats>")
        reader.expect("<PriorOffset>")
        prior_offset, max_count = reader.real(), 0.0
        at = reader.position
        if (token := reader.token()) == "<MaxCount>":  # old files have none
            max_count = reader.real()
            reader.expect("<NumFrames>")
        elif token != "<NumFrames>":
            reader.fail("unexpected token", at=at, expected="'<MaxCount>'", found=f"'{token}'")
        num_frames = reader.real()
        reader.expect("<QuadraticTerm>")
        quadratic = reader.symmetric_matrix()
        reader.expect("<LinearTerm>")
        linear = reader.double_vector()
        reader.expect("</OnlineIvectorEstimationStats>")
        reader.expect("</OnlineIvectorExtractorAdaptationState>")
        leave_behind(source, reader)
        try:
            return cls(
                cmvn=cmvn,
                prior_offset=prior_offset,
                max_count=max_count,
                num_frames=num_frames,
                quadratic=quadratic,
                linear=linear,
            )
        except SpeechError as error:
            reader.fail(str(error), at=start)

    def write(self, target: str | os.PathLike[str], *, binary: bool = True) -> None:
        """Writes it in Kaldi's form.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        writer = new_writer(binary=binary)
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
        writer.store(target)

    def limited(self, max_frames: float, posterior_scale: float) -> AdaptationState:
        """The state with the weight of at most some frames; the prior keeps its weight."""
        speaker, cmvn = self.cmvn.speaker, self.cmvn
        if speaker.size and speaker[0, -1] > max_frames:
            cmvn = attrs.evolve(cmvn, speaker=speaker * (max_frames / speaker[0, -1]))
        most = max_frames * posterior_scale
        if self.num_frames <= most:
            return attrs.evolve(self, cmvn=cmvn)
        scale = most / self.num_frames
        before, after = (prior_scale(count, self.max_count) for count in (self.num_frames, most))
        added = after - scale * before
        linear, quadratic = self.linear * scale, self.quadratic * scale
        linear[0] += self.prior_offset * added
        quadratic[np.diag_indices(len(linear))] += added
        return attrs.evolve(self, cmvn=cmvn, num_frames=most, linear=linear, quadratic=quadratic)


def prior_scale(count: float, max_count: float) -> float:
    """The weight of the prior: more than 1 where there are more frames than `max_count`."""
    return max(count, max_count) / max_count if max_count > 0.0 else 1.0
