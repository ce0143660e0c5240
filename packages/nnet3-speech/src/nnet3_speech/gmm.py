"""Gaussian mixtures of speech (universal background models), in Kaldi's files and form.

They hold what a likelihood needs: inverse variances, and means multiplied by these.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import files
from nnet3_descriptors.values import ReadOnlyArrays, frozen

from nnet3_speech.errors import SpeechError
from nnet3_speech.values import array_field, computing

Array = npt.NDArray[np.float32]


@attrs.frozen(kw_only=True, eq=False)
class _Mixture(ReadOnlyArrays):
    """What both kinds share. Arrays are read-only.

    Attributes:
        weights: (gaussians,) float32.
        gconsts: (gaussians,) float32, the log-likelihoods at 0 with the weights, as the file has
            them, or None; they are written again, and never used.
    """

    weights: Array = array_field(np.float32, repr=False)
    gconsts: Array | None = array_field(np.float32, default=None, repr=False)

    _NAME: ClassVar[str]
    """It stands in the tokens at the beginning and the end."""
    _ARRAYS: ClassVar[tuple[str, str]]
    """The fields behind the weights; the tokens before them are their names in capitals."""

    @property
    def num_gaussians(self) -> int:
        """Number of Gaussians."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return int(getattr(self, self._ARRAYS[0]).shape[1])

    def _check_values(self, *others: Array) -> None:
        if not all(np.isfinite(each).all() for each in (self.weights, *others)):
            raise SpeechError("a mixture of Gaussians has values that are not finite")
        if not (self.weights >= 0.0).all():
            raise SpeechError("a mixture of Gaussians: expected weights from 0 on")

    @classmethod
    def read(cls, source: files.PathOrFile) -> Self:
        """Reads a file, binary or text.

        Args:
            source: A path, or a file that is open for reading bytes.

        Raises:
            ModelFileError: the file cannot be read, or holds no such mixture; it says where.
        """
        reader = files.open_reader(source)
        name = cls._NAME
        start = reader.position
        found = reader.token()
        if found not in (f"<{name}>", f"<{name}Begin>"):
            reader.fail("unexpected token", at=start, expected=f"'<{name}>'", found=f"'{found}'")
        values: dict[str, Any] = {}
        at = reader.position
        if (found := reader.token()) == "<GCONSTS>":
            values["gconsts"] = reader.vector()
            at = reader.position
            found = reader.token()
        if found != "<WEIGHTS>":
            reader.fail("unexpected token", at=at, expected="'<WEIGHTS>'", found=f"'{found}'")
        values["weights"] = reader.vector()
        for field in cls._ARRAYS:
            reader.expect(f"<{field.upper()}>")
            values[field] = (
                read_triangles(reader, len(values["weights"]), np.float32)
                if field == "inv_covars"
                else reader.matrix()
            )
        at = reader.position
        if (found := _last_token(reader)) not in (f"</{name}>", f"<{name}End>"):
            reader.fail("unexpected token", at=at, expected=f"'</{name}>'", found=f"'{found}'")
        files.leave_behind(source, reader)
        try:
            return cls(**values)
        except SpeechError as error:
            reader.fail(str(error), at=start)

    def write(self, target: str | os.PathLike[str], *, binary: bool = True) -> None:
        """Writes it in Kaldi's form: a binary file that Kaldi wrote comes back byte for byte.

        Raises:
            FileError: it cannot be written; an old file stays.
        """
        writer = files.new_writer(binary=binary)
        writer.token(f"<{self._NAME}>")
        writer.newline()
        writer.token("<GCONSTS>")
        gconsts = self._constants if self.gconsts is None else self.gconsts
        writer.vector(gconsts.astype(np.float32))
        writer.token("<WEIGHTS>")
        writer.vector(self.weights)
        for field in self._ARRAYS:
            writer.token(f"<{field.upper()}>")
            array = getattr(self, field)
            if field != "inv_covars":
                writer.matrix(array)
                continue
            for matrix in array:
                writer.symmetric_matrix(matrix)
        writer.token(f"</{self._NAME}>")
        writer.newline()
        writer.store(target)

    @cached_property
    def _constants(self) -> npt.NDArray[np.float64]:
        raise NotImplementedError


def _last_token(reader: files.Reader) -> str:
    """The token at the end, behind which text needs no blank."""
    reader.skip_blanks()
    rest = bytes(reader.data[reader.position : reader.position + 20]).split()
    if not reader.binary and len(rest) == 1 and reader.remaining == len(rest[0]):
        reader.position = len(reader.data)
        return rest[0].decode("ascii", "replace")
    return reader.token()


@attrs.frozen(kw_only=True, eq=False)
class DiagGmm(_Mixture):
    """A mixture of Gaussians with diagonal covariances (`final.dubm`).

    Attributes:
        means_invvars: (gaussians, dim) float32, means divided by variances.
        inv_vars: (gaussians, dim) float32, inverses of the variances.
    """

    means_invvars: Array = array_field(np.float32, repr=False)
    inv_vars: Array = array_field(np.float32, repr=False)

    _NAME = "DiagGMM"
    _ARRAYS = "means_invvars", "inv_vars"

    def __attrs_post_init__(self) -> None:
        shape = self.means_invvars.shape
        shapes = shape, self.inv_vars.shape
        if not all(shape) or shapes != ((self.num_gaussians, shape[1]),) * 2:
            raise SpeechError(
                f"a mixture of {self.num_gaussians} Gaussians: expected means and inverse "
                f"variances with a row for each, found the shapes {shapes[0]} and {shapes[1]}"
            )
        if not ((self.inv_vars > 0) & np.isfinite(self.inv_vars)).all():
            raise SpeechError("a mixture of Gaussians: expected inverse variances above 0")
        self._check_values(self.means_invvars)

    @cached_property
    def _constants(self) -> npt.NDArray[np.float64]:
        means, inverse = self.means_invvars.astype(np.float64), self.inv_vars.astype(np.float64)
        terms = np.log(inverse) - means**2 / inverse
        constants: npt.NDArray[np.float64] = 0.5 * terms.sum(axis=1)
        return _log_weights(self.weights, self.dim) + constants

    @cached_property
    def _factors(self) -> Array:
        """(2 dim, gaussians), what a frame and its squares are multiplied by."""
        return np.concatenate((self.means_invvars, -0.5 * self.inv_vars), axis=1).T.copy()

    def log_likelihoods(self, frames: Array) -> Array:
        """The log-likelihood of each Gaussian, with its weight.

        Args:
            frames: (n, dim) float32.

        Returns:
            (n, gaussians) float32.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            both = np.concatenate((frames, np.square(frames)), axis=1)
            return both @ self._factors + self._constants.astype(np.float32)


@attrs.frozen(kw_only=True, eq=False)
class FullGmm(_Mixture):
    """A mixture of Gaussians with full covariances (`final.ubm`).

    Attributes:
        means_invcovars: (gaussians, dim) float32, inverse covariances times means.
        inv_covars: (gaussians, dim, dim) float32, inverses of the covariances.
    """

    means_invcovars: Array = array_field(np.float32, repr=False)
    inv_covars: Array = array_field(np.float32, repr=False)

    _NAME = "FullGMM"
    _ARRAYS = "means_invcovars", "inv_covars"

    def __attrs_post_init__(self) -> None:
        shape = self.means_invcovars.shape
        wanted = (self.num_gaussians, shape[1], shape[1])
        if not all(shape) or shape[0] != wanted[0] or self.inv_covars.shape != wanted:
            raise SpeechError(
                f"a mixture of {self.num_gaussians} Gaussians: expected a row of means and an "
                f"inverse covariance for each, found the shapes {shape} and {self.inv_covars.shape}"
            )
        self._check_values(self.means_invcovars, self.inv_covars)

    @cached_property
    def _constants(self) -> npt.NDArray[np.float64]:
        inverse = self.inv_covars.astype(np.float64)
        try:
            factors = np.linalg.cholesky(inverse)
        except np.linalg.LinAlgError:
            raise SpeechError(
                "a mixture of Gaussians: an inverse covariance is not positive"
            ) from None
        log_determinants = 2.0 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        means = self.means_invcovars.astype(np.float64)
        squares = (means * np.linalg.solve(inverse, means[..., None])[..., 0]).sum(axis=1)
        constants: npt.NDArray[np.float64] = 0.5 * (log_determinants - squares)
        return _log_weights(self.weights, self.dim) + constants

    def log_likelihoods(self, frames: Array) -> Array:
        """The log-likelihood of each Gaussian, with its weight.

        Args:
            frames: (n, dim) float32.

        Returns:
            (n, gaussians) float32.

        Raises:
            SpeechError: an inverse covariance is not positive.
        """
        with computing("likelihoods of Gaussians"):
            squares = np.einsum("nd,gde,ne->ng", frames, self.inv_covars, frames, optimize=True)
            linear = frames @ self.means_invcovars.T
            result: Array = (linear - 0.5 * squares + self._constants).astype(np.float32)
        return result


def _log_weights(weights: Array, dim: int) -> npt.NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        logs = np.log(weights.astype(np.float64))
    return logs - 0.5 * math.log(2.0 * math.pi) * dim


def read_triangles(
    reader: files.Reader, count: int, dtype: type[np.float32 | np.float64]
) -> npt.NDArray[Any]:
    """Reads symmetric matrices of one size.

    Args:
        reader: Where they stand.
        count: Their number.
        dtype: Of the result.

    Returns:
        (count, size, size).

    Raises:
        ModelFileError: one of them is of another size than the first.
    """
    return _alike(reader, count, reader.symmetric_matrix, dtype)


def read_alike(reader: files.Reader, count: int) -> npt.NDArray[np.float64]:
    """Reads matrices of one shape, (count, rows, cols) float64; see `read_triangles`."""
    return _alike(reader, count, reader.double_matrix, np.float64)


def _alike(
    reader: files.Reader, count: int, read: Callable[[], npt.NDArray[Any]], dtype: type[Any]
) -> npt.NDArray[Any]:
    found: list[npt.NDArray[Any]] = []
    for _ in range(count):
        start = reader.position
        matrix = read()
        if found and matrix.shape != found[0].shape:
            reader.fail(
                "the matrices must be of one size",
                at=start,
                expected=_shape(found[0]),
                found=_shape(matrix),
            )
        with np.errstate(over="ignore"):  # what overflows is refused as not finite
            found.append(matrix.astype(dtype))
    return frozen(np.stack(found)) if found else np.zeros((0, 0, 0), dtype)


def _shape(matrix: npt.NDArray[Any]) -> str:
    return " x ".join(map(str, matrix.shape))


@attrs.frozen
class Posteriors:
    """Posteriors of the most probable Gaussians, as a list.

    Attributes:
        frames: (p,) int64, the row of the frame, in rising order.
        gaussians: (p,) int64.
        values: (p,) float64.
    """

    frames: npt.NDArray[np.int64]
    gaussians: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def pruned_posteriors(
    log_likelihoods: Array,
    num_gselect: int,
    min_post: float | npt.NDArray[np.float64],
    *,
    first_frame: int = 0,
) -> Posteriors:
    """Posteriors without those that are small; those of a frame add up to 1.

    First the Gaussians whose likelihood is below `min_post` of the largest are left out, and all
    but the `num_gselect` most likely ones; then those below `min_post` of what is left. (Kaldi's
    VectorToPosteriorEntry.)

    Args:
        log_likelihoods: (n, gaussians) float32.
        num_gselect: The most Gaussians of a frame.
        min_post: The threshold, or (n,) one for each frame; from 0 to below 1.
        first_frame: The number of the first frame, for errors.

    Raises:
        SpeechError: no Gaussian of a frame has a finite log-likelihood, or a number is out of
            range.
    """
    count, gaussians = log_likelihoods.shape
    threshold = np.broadcast_to(np.asarray(min_post, dtype=np.float64), count)[:, None]
    if num_gselect < 1 or not ((threshold >= 0.0) & (threshold < 1.0)).all():
        raise SpeechError(
            "posteriors: expected num_gselect >= 1 and 0 <= min_post < 1, found "
            f"{num_gselect} and {min_post}"
        )
    selected = min(num_gselect, gaussians)
    left = np.where(np.isnan(log_likelihoods), -np.inf, log_likelihoods)
    chosen = np.empty((count, selected), np.int64)
    likelihoods = np.empty((count, selected))
    rows = np.arange(count)
    # One by one: for the usual five it takes a tenth of the time of a partition.
    for place in range(selected):
        chosen[:, place] = columns = left.argmax(axis=1)
        likelihoods[:, place] = left[rows, columns]
        left[rows, columns] = -np.inf
    best = likelihoods[:, :1]
    if not np.isfinite(best).all():
        frame = first_frame + int(np.flatnonzero(~np.isfinite(best))[0])
        raise SpeechError(f"frame {frame}: no Gaussian has a finite likelihood")
    posteriors = np.exp(likelihoods - best)
    posteriors[posteriors <= np.where(threshold > 0.0, threshold, -1.0)] = 0.0
    posteriors[:, 0] = 1.0
    sums = posteriors.sum(axis=1, keepdims=True)
    kept = posteriors >= threshold * sums
    kept[:, 0] = True
    posteriors[~kept] = 0.0
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    frames, columns = np.nonzero(posteriors)
    return Posteriors(frames, chosen[frames, columns], posteriors[frames, columns])
