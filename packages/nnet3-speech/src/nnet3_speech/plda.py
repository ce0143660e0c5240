"""Probabilistic linear discriminant analysis (PLDA): whether two vectors are of one speaker.

A vector of an utterance is m + y + z. The mean m is that of all vectors; y ~ N(0, B) is the same in
all utterances of a speaker, and z ~ N(0, W) differs between them. A matrix T gives the vectors a
form in which utterances have a unit covariance and speakers a diagonal one: T W T' = I and
T B T' = diag(psi). (S. Ioffe, "Probabilistic linear discriminant analysis", ECCV 2006; the names
are Kaldi's.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import files
from nnet3_descriptors.values import ReadOnlyArrays

from nnet3_speech.errors import SpeechError
from nnet3_speech.speaker_vectors import check_varying, grouped, rows_of
from nnet3_speech.values import (
    array_field,
    check_finite,
    computing,
    expect_count,
    expect_factor,
    numbers,
)

Array = npt.NDArray[np.float64]

_LEAST_PSI = -1e-6
"""Adaptation leaves values a little below 0 where speakers do not differ."""


@attrs.frozen(kw_only=True, eq=False)
class Plda(ReadOnlyArrays):
    """A PLDA model. Its arrays are read-only.

    Attributes:
        mean: (dim,) float64, the mean m of all vectors.
        matrix: (dim, dim) float64, T, which gives vectors without their mean the form above.
        psi: (dim,) float64, the variances of speakers in this form, in falling order.
    """

    mean: Array = array_field(np.float64)
    matrix: Array = array_field(np.float64, repr=False)
    psi: Array = array_field(np.float64, repr=False)

    def __attrs_post_init__(self) -> None:
        dim = self.mean.size
        shapes = self.mean.shape, self.matrix.shape, self.psi.shape
        if not dim or shapes != ((dim,), (dim, dim), (dim,)):
            raise SpeechError(
                "PLDA: expected a mean of at least one value, a square matrix and variances of "
                f"its size, found the shapes {', '.join(map(str, shapes))}"
            )
        for what, values in (("mean", self.mean), ("matrix", self.matrix), ("psi", self.psi)):
            if not np.isfinite(values).all():
                raise SpeechError(f"PLDA: the {what} has values that are not finite")
        if self.psi.min() < _LEAST_PSI:
            raise SpeechError(f"PLDA: expected variances psi >= 0, found {self.psi.min():g}")

    @property
    def dim(self) -> int:
        """The size of the vectors."""
        return int(self.mean.size)

    # ---- files ----

    @classmethod
    def read(cls, source: files.PathOrFile) -> Self:
        """Reads a file `plda`, binary or text, as ivector-compute-plda writes it.

        Args:
            source: A path, or a file that is open for reading bytes.

        Raises:
            ModelFileError: the file cannot be read or holds no PLDA model; it says where.
        """
        reader = files.open_reader(source)
        start = reader.position
        reader.expect("<Plda>")
        mean, matrix, psi = reader.double_vector(), reader.double_matrix(), reader.double_vector()
        reader.expect("</Plda>")
        files.leave_behind(source, reader)
        try:
            return cls(mean=mean, matrix=matrix, psi=psi)
        except SpeechError as error:
            reader.fail(str(error), at=start)

    def write(self, target: files.PathOrFile, *, binary: bool = True) -> None:
        """Writes it in Kaldi's form: a file that Kaldi wrote comes back byte for byte.

        Args:
            target: A path, or a file that is open for writing bytes.
            binary: Whether to write it in binary form; else as text, with seven digits.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        writer = files.new_writer(binary=binary)
        writer.token("<Plda>")
        writer.double_vector(self.mean)
        writer.double_matrix(self.matrix)
        writer.double_vector(self.psi)
        writer.token("</Plda>")
        writer.store(target)

    # ---- scores ----

    def transform(
        self,
        vectors: npt.ArrayLike,
        *,
        num_utts: npt.ArrayLike = 1,
        normalize_length: bool = True,
        simple_length_normalization: bool = False,
    ) -> Array:
        """Brings vectors into the form in which `log_likelihood_ratio` compares them.

        Args:
            vectors: (n, dim) or (dim,), vectors of utterances, or their means by speaker.
            num_utts: Number of utterances that a vector is the mean of: one, or (n,).
            normalize_length: Whether to scale each vector so that the sum of its squares, each
                divided by its variance psi + 1 / num_utts, is dim.
            simple_length_normalization: Whether to scale to a length of sqrt(dim) instead.

        Returns:
            (n, dim) or (dim,) float64.

        Raises:
            SpeechError: the vectors have another size or are not finite, or a number of
                utterances is not above 0.
        """
        with computing("PLDA"):
            rows = (rows_of(vectors, self.dim) - self.mean) @ self.matrix.T
            if normalize_length:
                factor = self._factor(rows, _positive(num_utts), simple_length_normalization)
                rows *= factor[..., None]
        return check_finite(rows, "PLDA")

    def normalization_factor(
        self,
        transformed: npt.ArrayLike,
        *,
        num_utts: npt.ArrayLike = 1,
        simple_length_normalization: bool = False,
    ) -> Array:
        """The factors by which `transform` normalises the length of vectors.

        A vector of zeros, which is the mean of all, has no length to normalise: its factor is 1.

        Args:
            transformed: (n, dim) or (dim,), as `transform` gives them without normalisation.
            num_utts: As in `transform`.
            simple_length_normalization: As in `transform`.

        Returns:
            (n,) or () float64.

        Raises:
            SpeechError: see `transform`.
        """
        count = _positive(num_utts)
        with computing("PLDA"):
            return self._factor(rows_of(transformed, self.dim), count, simple_length_normalization)

    def _factor(self, rows: Array, count: Array, is_simple: bool) -> Array:
        variances = 1.0 if is_simple else self._psi + 1.0 / count
        squares = check_finite(np.sum(rows**2 / variances, axis=-1), "PLDA")
        return np.sqrt(self.dim / np.where(squares > 0.0, squares, float(self.dim)))

    def log_likelihood_ratio(
        self, enrolled: npt.ArrayLike, tests: npt.ArrayLike, *, num_utts: npt.ArrayLike = 1
    ) -> Array:
        """The logarithm of how much likelier a vector is if it is of the enrolled speaker.

        With the mean e of n transformed vectors of a speaker, another vector of the speaker is
        distributed as N(n psi / (n psi + 1) e, 1 + psi / (n psi + 1)), and one of an unknown
        speaker as N(0, 1 + psi).

        Args:
            enrolled: (..., dim), transformed means of speakers.
            tests: (..., dim), transformed vectors of utterances. The axes before the last are
                broadcast: (n, dim) twice gives n trials, (n, 1, dim) and (m, dim) all n by m.
            num_utts: Utterances of the enrolled vectors: one number, or their shape without dim.

        Returns:
            (...), the ratios.

        Raises:
            SpeechError: see `transform`.
        """
        count, psi = _positive(num_utts), self._psi
        enrolled, tests = (
            numbers(each, what, ("...", self.dim))
            for what, each in (("enrolled vectors", enrolled), ("tests", tests))
        )
        with computing("PLDA"):
            weight = count * psi / (count * psi + 1.0)
            variance = 1.0 + psi / (count * psi + 1.0)
            of_speaker = np.log(variance) + (tests - weight * enrolled) ** 2 / variance
            of_anybody = np.log(1.0 + psi) + tests**2 / (1.0 + psi)
            return check_finite(0.5 * np.sum(of_anybody - of_speaker, axis=-1), "PLDA")

    def score(
        self,
        enrolled: npt.ArrayLike,
        tests: npt.ArrayLike,
        *,
        num_utts: npt.ArrayLike = 1,
        normalize_length: bool = True,
        simple_length_normalization: bool = False,
    ) -> Array:
        """The log-likelihood ratios of trials, as ivector-plda-scoring computes them.

        Each row of `enrolled` is compared with the same row of `tests`; a single vector is
        compared with all rows of the other.

        Args:
            enrolled: (n, dim) or (dim,), means of speakers, not transformed.
            tests: (n, dim) or (dim,), vectors of utterances, not transformed.
            num_utts: Utterances of each enrolled vector: one number, or (n,).
            normalize_length: See `transform`.
            simple_length_normalization: See `transform`.

        Returns:
            (n,), or () for two single vectors: above 0, one speaker is the likelier.

        Raises:
            SpeechError: see `transform`; or the numbers of rows differ.
        """
        how: dict[str, Any] = {
            "normalize_length": normalize_length,
            "simple_length_normalization": simple_length_normalization,
        }
        of_speakers = self.transform(enrolled, num_utts=num_utts, **how)
        of_tests = self.transform(tests, **how)
        if of_speakers.ndim == of_tests.ndim == 2 and len(of_speakers) != len(of_tests):
            raise SpeechError(
                f"expected as many enrolled vectors as tests, found {len(of_speakers)} and "
                f"{len(of_tests)}"
            )
        return self.log_likelihood_ratio(of_speakers, of_tests, num_utts=num_utts)

    @property
    def _psi(self) -> Array:
        return np.maximum(self.psi, 0.0)

    # ---- other models ----

    def smoothed(self, factor: float) -> Self:
        """Adds a part of the speakers' covariance to the utterances' (ivector-copy-plda).

        Args:
            factor: Which part, from 0 to 1 (`--smoothing`).

        Raises:
            SpeechError: it is no number, below 0, or above 1.
        """
        expect_factor(factor, "smoothing", 1.0)
        within = 1.0 + factor * self._psi
        matrix = self.matrix / np.sqrt(within)[:, None]
        return attrs.evolve(self, matrix=matrix, psi=self._psi / within)

    @computing("adaptation of PLDA")
    def adapted(
        self,
        vectors: npt.ArrayLike,
        *,
        mean_diff_scale: float = 1.0,
        within_covar_scale: float = 0.3,
        between_covar_scale: float = 0.7,
    ) -> Self:
        """Adapts the model to vectors of unknown speakers of another domain (ivector-adapt-plda).

        The mean becomes that of the vectors. Where their variance is above that of the model,
        parts of the excess are added to the covariances of utterances and of speakers.

        Args:
            vectors: (n, dim).
            mean_diff_scale: Which part of the squared difference of the means counts as variance.
            within_covar_scale: Which part of the excess becomes variance of utterances.
            between_covar_scale: Which part becomes variance of speakers.

        Raises:
            SpeechError: there are no vectors, they have another size, or a scale is no finite
                number of 0 or more.
        """
        expect_factor(mean_diff_scale, "mean_diff_scale")
        expect_factor(within_covar_scale, "within_covar_scale")
        expect_factor(between_covar_scale, "between_covar_scale")
        rows = np.atleast_2d(rows_of(vectors, self.dim))
        if not len(rows):
            raise SpeechError("adaptation: expected at least one vector, found none")
        mean = rows.mean(axis=0)
        centred, shift = rows - mean, mean - self.mean
        variance = centred.T @ centred / len(rows) + mean_diff_scale * np.outer(shift, shift)
        # In this form the model's total covariance W + B is the unit matrix.
        to_unit = self.matrix / np.sqrt(1.0 + self._psi)[:, None]
        values, directions = np.linalg.eigh(to_unit @ variance @ to_unit.T)
        inverse = np.linalg.inv(self.matrix)
        back = inverse * np.sqrt(1.0 + self._psi) @ directions
        excess = back * np.maximum(values - 1.0, 0.0) @ back.T
        within = inverse @ inverse.T + within_covar_scale * excess
        between = inverse * self._psi @ inverse.T + between_covar_scale * excess
        return self._of_covariances(mean, within, between)

    @classmethod
    @computing("PLDA")
    def estimate(
        cls, vectors: npt.ArrayLike, speakers: Sequence[str], *, num_em_iters: int = 10
    ) -> Self:
        """Estimates a model by expectation maximisation, as ivector-compute-plda does.

        Args:
            vectors: (n, dim), vectors of utterances, more than dim.
            speakers: The speaker of each, n; at least one has more than one utterance.
            num_em_iters: Number of iterations, 1 or more.

        Raises:
            SpeechError: there are too few vectors, or they do not vary within speakers.
        """
        expect_count(num_em_iters, "num_em_iters")
        _, means, counts, rest = grouped(vectors, speakers)
        num_vectors, dim = rest.shape
        if num_vectors <= dim:
            raise SpeechError(f"PLDA of {dim} dims: expected more vectors, found {num_vectors}")
        if num_vectors == len(means):
            raise SpeechError("PLDA: no speaker has more than one vector")
        scatter, mean = rest.T @ rest, means.mean(axis=0)
        size = max(np.abs(means).max(), np.abs(rest).max())
        check_varying(np.trace(scatter) / num_vectors, size, "PLDA")
        within = between = np.eye(dim)
        for _ in range(num_em_iters):
            inverse_within, inverse_between = np.linalg.inv(within), np.linalg.inv(between)
            of_utterances, of_speakers = scatter.copy(), np.zeros((dim, dim))
            for count in np.unique(counts):
                # The mean of count vectors is y + z: y ~ N(0, B), z ~ N(0, W / count). What y is
                # expected to be, and how much it varies:
                sums = (means - mean)[counts == count]
                covariance = np.linalg.inv(inverse_between + count * inverse_within)
                expected = count * sums @ inverse_within @ covariance
                others = sums - expected
                of_speakers += len(sums) * covariance + expected.T @ expected
                of_utterances += count * (len(sums) * covariance + others.T @ others)
            within, between = of_utterances / num_vectors, of_speakers / len(means)
        return cls._of_covariances(mean, within, between)

    @classmethod
    @computing("PLDA")
    def _of_covariances(cls, mean: Array, within: Array, between: Array) -> Self:
        """The model with these covariances W of utterances and B of speakers."""
        inverse = np.linalg.inv(np.linalg.cholesky(within))
        values, directions = np.linalg.eigh(inverse @ between @ inverse.T)
        matrix, psi = directions.T[::-1] @ inverse, np.maximum(values[::-1], 0.0)
        return cls(mean=mean, matrix=matrix, psi=psi)


def _positive(num_utts: npt.ArrayLike) -> Array:
    """Numbers of utterances, with an axis behind that the dims of vectors take."""
    count = numbers(num_utts, "num_utts", (), ("...", "n"))
    if not (count > 0).all():
        raise SpeechError(f"num_utts: expected numbers above 0, found {num_utts!r:.60}")
    return count[..., None]
