"""Training examples: the inputs of some sequences, and the supervision of their outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors.files import CompressedMatrix, SparseMatrix
from nnet3_descriptors.indexes import IndexArray, N, T, is_int32
from nnet3_descriptors.values import ReadOnlyArrays, frozen, has_masks, read_only

from nnet3_training.errors import ExampleError

FloatArray = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def array_of(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    """The values as an array.

    Raises:
        ExampleError: they are none; or an array, or one of its rows, is masked.
    """
    if has_masks(values):
        raise ExampleError(f"expected {what}, found a masked array; filled() makes one of it")
    try:
        return np.asarray(values)
    except (OverflowError, TypeError, ValueError) as error:  # such as rows of different lengths
        raise ExampleError(f"expected {what}: {error}") from error


def reals(values: npt.ArrayLike, what: str, num_axes: int) -> FloatArray:
    """The values as a read-only float32 array; NaN and infinity stay what they are.

    Raises:
        ExampleError: they are not real numbers, have another number of axes, or become infinite
            in single precision.
    """
    array = array_of(values, what)
    is_real = array.dtype.kind in "fiu" or not array.size  # an empty tuple is an array of floats
    if array.ndim != num_axes or not is_real:
        raise ExampleError(f"expected {what}, found shape {array.shape} of {array.dtype}")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize > single.dtype.itemsize:
        too_large = np.isinf(single) & np.isfinite(array)
        if too_large.any():
            raise ExampleError(
                f"expected {what}: {array[too_large][0]} is too large for single precision"
            )
    return read_only(single)


def matrix_of(values: npt.ArrayLike) -> FloatArray:
    """The values as a read-only float32 matrix.

    Raises:
        ExampleError: they are not a matrix of numbers, or too large for single precision.
    """
    return reals(values, "a matrix (rows, columns)", 2)


def whole_numbers(
    values: npt.ArrayLike, what: str, dtype: type[np.integer[Any]]
) -> npt.NDArray[Any]:
    """The values as an array of integers.

    Raises:
        ExampleError: they are something else.
    """
    array = array_of(values, what)
    if array.dtype == dtype:  # nothing to check; arrays from files have this type
        return array
    if array.size and array.dtype.kind not in "iu":  # an empty list is an array of floats
        raise ExampleError(f"expected {what}, integers, found {array.dtype}")
    limits = np.iinfo(dtype)
    if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
        raise ExampleError(
            f"expected {what}, integers of {limits.bits} bits, found {array.min()} to {array.max()}"
        )
    return array.astype(dtype, copy=False)


def indexes_of(values: npt.ArrayLike) -> IndexArray:
    """The values as read-only (rows, 3) int32.

    Raises:
        ExampleError: they are something else.
    """
    array = whole_numbers(values, "indexes (rows, 3)", np.int32)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ExampleError(f"expected indexes (rows, 3), found the shape {array.shape}")
    return read_only(array)


def integers_of(values: npt.ArrayLike) -> Integers:
    """The values as read-only (entries,) int64.

    Raises:
        ExampleError: they are something else.
    """
    array = whole_numbers(values, "splits and classes", np.int64)
    if array.ndim != 1:
        raise ExampleError(f"expected splits and classes (entries,), found shape {array.shape}")
    return read_only(array)


def labels_of(values: npt.ArrayLike) -> Integers:
    """The values as (rows,) integers.

    Raises:
        ExampleError: they are something else.
    """
    array = array_of(values, "labels (frames,)")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ExampleError(
            f"expected labels (frames,), integers, found shape {array.shape} of {array.dtype}"
        )
    return whole_numbers(array, "labels (frames,)", np.int64)


def joined(name: str, arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The rows of all arrays.

    Raises:
        ExampleError: there are none, or their columns differ.
    """
    if not arrays:
        raise ExampleError(f"'{name}': expected at least one sequence, found none")
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        raise ExampleError(f"'{name}': sequences differ in their dimension: {sorted(shapes)}")
    return frozen(np.concatenate(arrays))


def weights_of(values: npt.ArrayLike) -> FloatArray:
    """The values as read-only (entries,) float32.

    Raises:
        ExampleError: they are something else, or too large for single precision.
    """
    return reals(values, "weights (entries,)", 1)


Io = TypeVar("Io")


def _brief(array: npt.NDArray[Any] | CompressedMatrix | SparsePosteriors) -> str:
    """A short description of an array."""
    kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
    return f"<{kind} {array.shape}>"


def _full_or_compressed(values: npt.ArrayLike | CompressedMatrix) -> FloatArray | CompressedMatrix:
    return values if isinstance(values, CompressedMatrix) else matrix_of(values)


@attrs.frozen(kw_only=True, eq=False)
class DenseTargets(ReadOnlyArrays):
    """A number for each element of an output: values to be reached, or posteriors.

    Attributes:
        matrix: (rows, dim) float32; or compressed, as it is stored. Given as `values`.

    Raises:
        ExampleError: the values are not a matrix of numbers.
    """

    matrix: FloatArray | CompressedMatrix = attrs.field(
        alias="values", converter=_full_or_compressed, repr=_brief
    )

    @property
    def values(self) -> FloatArray:
        """(rows, dim) float32; decompressed if the matrix is compressed."""
        return values_of(self.matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        rows, dim = self.matrix.shape
        return rows, dim

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after the other."""
        return cls(values=np.concatenate([part.values for part in parts]))

    def taken(self, rows: npt.NDArray[np.integer[Any]]) -> Self:
        """The rows of these numbers."""
        return type(self)(values=self.values[rows])


@attrs.frozen(kw_only=True, eq=False)
class SparsePosteriors(ReadOnlyArrays):
    """A few weighted classes for each row of an output; all other classes have weight 0.

    Attributes:
        dim: Number of classes.
        splits: (rows + 1,) int64; entries splits[i] to splits[i+1] belong to row i.
        classes: (entries,) int64, each below dim.
        weights: (entries,) float32.

    Raises:
        ExampleError: the arrays do not hold such numbers, or do not fit each other.
    """

    dim: int = attrs.field()
    splits: Integers = attrs.field(converter=integers_of, repr=_brief)
    classes: Integers = attrs.field(converter=integers_of, repr=_brief)
    weights: FloatArray = attrs.field(converter=weights_of, repr=_brief)

    @dim.validator
    def _check_dim(self, _: object, dim: object) -> None:
        if not isinstance(dim, int | np.integer) or dim < 0:
            raise ExampleError(f"the number of classes must be an integer >= 0 (got {dim!r})")

    def __attrs_post_init__(self) -> None:
        entries = len(self.classes)
        if self.weights.shape != (entries,):
            raise ExampleError(
                f"{entries} classes need as many weights, found the shape {self.weights.shape}"
            )
        s = self.splits
        if len(s) < 2 or s[0] != 0 or s[-1] != entries or bool((np.diff(s) < 0).any()):
            raise ExampleError(f"the splits must rise from 0 to the {entries} entries")
        if entries and not 0 <= self.classes.min() <= self.classes.max() < self.dim:
            raise ExampleError(
                f"classes must be 0 to {self.dim - 1}, found {self.classes.min()} to "
                f"{self.classes.max()}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        return len(self.splits) - 1, self.dim

    @property
    def rows(self) -> Integers:
        """(entries,), the row that each entry belongs to."""
        return np.repeat(np.arange(len(self.splits) - 1), np.diff(self.splits))

    @property
    def values(self) -> FloatArray:
        """(rows, dim) float32, with the zeros; see `SparseMatrix.dense`."""
        return SparseMatrix(self.dim, self.splits, self.classes, self.weights).dense()

    @classmethod
    def from_labels(cls, labels: npt.ArrayLike, dim: int) -> Self:
        """One class of weight 1 for each row; a row with a negative label gets none.

        Raises:
            ExampleError: the labels are not (rows,) integers below dim.
        """
        array = labels_of(labels)
        known = array >= 0
        return cls(
            dim=dim,
            splits=np.concatenate(([0], np.cumsum(known))),
            classes=array[known],
            weights=np.ones(int(known.sum())),
        )

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after the other."""
        sizes = np.concatenate([np.diff(part.splits) for part in parts])
        return cls(
            dim=parts[0].dim,
            splits=np.concatenate(([0], np.cumsum(sizes))),
            classes=np.concatenate([part.classes for part in parts]),
            weights=np.concatenate([part.weights for part in parts]),
        )

    def taken(self, rows: npt.NDArray[np.integer[Any]], factors: FloatArray | None = None) -> Self:
        """The rows of these numbers; a row beyond the end has no classes.

        Args:
            rows: (new rows,), numbers of rows.
            factors: (new rows,), multiply the weights of each; None for 1.
        """
        starts, ends = (self.splits[np.minimum(each, self.shape[0])] for each in (rows, rows + 1))
        sizes = ends - starts
        splits = np.concatenate(([0], np.cumsum(sizes)))
        entries = np.repeat(starts - splits[:-1], sizes) + np.arange(splits[-1])
        weights = self.weights[entries]
        return type(self)(
            dim=self.dim,
            splits=splits,
            classes=self.classes[entries],
            weights=weights if factors is None else weights * np.repeat(factors, sizes),
        )


StoredMatrix = FloatArray | CompressedMatrix | SparsePosteriors
"""A matrix in one of the forms that Kaldi stores."""


def values_of(matrix: StoredMatrix) -> FloatArray:
    """The values of a matrix of any form, (rows, cols) float32."""
    if isinstance(matrix, CompressedMatrix):
        return matrix.decompressed()
    return matrix.values if isinstance(matrix, SparsePosteriors) else matrix


def _stored(values: npt.ArrayLike | StoredMatrix) -> StoredMatrix:
    if isinstance(values, CompressedMatrix | SparsePosteriors):
        return values
    return matrix_of(values)


def _sequence_indexes(lengths: Iterable[int], t_start: int, t_step: int) -> IndexArray:
    """(rows, 3): the rows of sequence 0, then those of sequence 1, ...; x is 0.

    Raises:
        ExampleError: t_start or t_step is not an integer, or a t does not fit in 32 bits.
    """
    for name, value in (("t_start", t_start), ("t_step", t_step)):
        if not isinstance(value, int | np.integer) or not is_int32(int(value)):
            raise ExampleError(f"'{name}' must be an integer of 32 bits (got {value!r})")
    parts = []
    for n, length in enumerate(lengths):
        part = np.zeros((length, 3), dtype=np.int64)
        part[:, N] = n
        part[:, T] = t_start + t_step * np.arange(length)
        parts.append(part)
    return indexes_of(np.concatenate(parts))


@attrs.frozen(kw_only=True, eq=False)
class ExampleInput(ReadOnlyArrays):
    """The values of an input node.

    Attributes:
        name: The node.
        indexes: (rows, 3) int32, columns n, t, x.
        matrix: (rows, dim) float32; or compressed or sparse, as it is stored. Given as `values`.

    Raises:
        ExampleError: the values are not a matrix of numbers, or rows and indexes differ in number.
    """

    name: str
    indexes: IndexArray = attrs.field(converter=indexes_of, repr=_brief)
    matrix: StoredMatrix = attrs.field(alias="values", converter=_stored, repr=_brief)

    def __attrs_post_init__(self) -> None:
        rows = self.matrix.shape[0]
        if len(self.indexes) != rows:
            raise ExampleError(f"input '{self.name}': {len(self.indexes)} indexes for {rows} rows")

    @property
    def values(self) -> FloatArray:
        """(rows, dim) float32; those of another form are computed."""
        return values_of(self.matrix)

    @classmethod
    def from_sequences(
        cls, name: str, sequences: Sequence[npt.ArrayLike], *, t_start: int = 0, t_step: int = 1
    ) -> Self:
        """The frames of sequences, each (frames, dim), the first of each at t_start.

        Raises:
            ExampleError: there are no sequences, or they are not matrices of the same dimension.
        """
        arrays = [matrix_of(sequence) for sequence in sequences]
        values = joined(name, arrays)
        indexes = _sequence_indexes(map(len, arrays), t_start, t_step)
        return cls(name=name, indexes=indexes, values=values)


class PathSupervision(ReadOnlyArrays):
    """What examples know of a `ChainSupervision`, the only class of this kind.

    Attributes:
        weight: Multiplies the objective.
    """

    __slots__ = ()
    weight: float

    def check_indexes(self, name: str, indexes: IndexArray) -> None:
        """Raises an ExampleError if the indexes of an output are not as this needs them."""
        raise NotImplementedError


@attrs.frozen(kw_only=True, eq=False)
class ExampleOutput(ReadOnlyArrays):
    """The supervision of an output node.

    Attributes:
        name: The node.
        indexes: (rows, 3) int32, columns n, t, x.
        supervision: `DenseTargets`, `SparsePosteriors`, or any value that the trainer's
            objective function takes.

    Raises:
        ExampleError: there is not one index for each row of the supervision, if it is dense or
            sparse; or the indexes are not as a `ChainSupervision` needs them.
    """

    name: str
    indexes: IndexArray = attrs.field(converter=indexes_of, repr=_brief)
    supervision: Any

    def __attrs_post_init__(self) -> None:
        known = self.supervision
        if (
            isinstance(known, DenseTargets | SparsePosteriors)
            and len(self.indexes) != (known.shape[0])
        ):
            raise ExampleError(
                f"output '{self.name}': {len(self.indexes)} indexes for {known.shape[0]} rows of "
                "supervision"
            )
        if isinstance(known, PathSupervision):
            known.check_indexes(self.name, self.indexes)

    @property
    def matrix(self) -> StoredMatrix:
        """(rows, dim), the supervision as it is stored; as `ExampleInput.matrix`.

        Raises:
            ExampleError: it is neither `DenseTargets` nor `SparsePosteriors`, as in 'chain' models.
        """
        known = self.supervision
        if isinstance(known, DenseTargets):
            return known.matrix
        if not isinstance(known, SparsePosteriors):
            raise ExampleError(
                f"output '{self.name}': expected DenseTargets or SparsePosteriors, found "
                f"{type(known).__name__}"
            )
        return known

    @property
    def values(self) -> FloatArray:
        """(rows, dim) float32, the supervision as numbers; as `ExampleInput.values`.

        Raises:
            ExampleError: see `matrix`.
        """
        return values_of(self.matrix)

    @classmethod
    def from_targets(
        cls, name: str, sequences: Sequence[npt.ArrayLike], *, t_start: int = 0, t_step: int = 1
    ) -> Self:
        """Targets for the frames of sequences, each (frames, dim), every t_step from t_start.

        Raises:
            ExampleError: there are no sequences, or they are not matrices of the same dimension.
        """
        arrays = [matrix_of(sequence) for sequence in sequences]
        supervision = DenseTargets(values=joined(name, arrays))
        indexes = _sequence_indexes(map(len, arrays), t_start, t_step)
        return cls(name=name, indexes=indexes, supervision=supervision)

    @classmethod
    def from_labels(
        cls,
        name: str,
        sequences: Sequence[npt.ArrayLike],
        dim: int,
        *,
        t_start: int = 0,
        t_step: int = 1,
    ) -> Self:
        """A class for each frame of sequences, each (frames,) integers; negative for unknown.

        Raises:
            ExampleError: there are no sequences, or the labels are not integers below dim.
        """
        labels = [labels_of(sequence) for sequence in sequences]
        supervision = SparsePosteriors.from_labels(joined(name, labels), dim)
        indexes = _sequence_indexes(map(len, labels), t_start, t_step)
        return cls(name=name, indexes=indexes, supervision=supervision)


def _inputs(values: Iterable[ExampleInput]) -> tuple[ExampleInput, ...]:
    return _all_of(values, ExampleInput)


def _outputs(values: Iterable[ExampleOutput]) -> tuple[ExampleOutput, ...]:
    return _all_of(values, ExampleOutput)


def _all_of(values: Iterable[Io], kind: type[Io]) -> tuple[Io, ...]:
    """The values, which have to be of a kind.

    Raises:
        ExampleError: they are not.
    """
    found = tuple(values) if isinstance(values, Iterable) else (values,)
    if not isinstance(values, Iterable) or not all(isinstance(each, kind) for each in found):
        kinds = ", ".join(sorted({type(each).__name__ for each in found}))
        raise ExampleError(f"expected a list, each element an {kind.__name__}, found {kinds}")
    return found


@attrs.frozen(kw_only=True, eq=False)
class TrainingExample:
    """The data of one training step: one or many sequences, n = 0, 1, ...

    Attributes:
        key: Its name in an archive, if it has one.
        inputs: The values of each input node.
        outputs: The supervision of each output node to train.

    Raises:
        ExampleError: inputs are not a list of `ExampleInput`, or outputs of `ExampleOutput`.
    """

    key: str = ""
    inputs: tuple[ExampleInput, ...] = attrs.field(converter=_inputs)
    outputs: tuple[ExampleOutput, ...] = attrs.field(converter=_outputs)

    @property
    def ios(self) -> tuple[ExampleInput | ExampleOutput, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def num_sequences(self) -> int:
        """One more than the largest n of all outputs; 1 if there are none."""
        return 1 + max((int(io.indexes[:, N].max(initial=0)) for io in self.outputs), default=0)

    def request(
        self, *, need_derivatives: bool = True, store_component_stats: bool = True
    ) -> ComputationRequest:
        """The computation that a training step needs.

        Args:
            need_derivatives: Whether the request has a backward pass; an evaluation needs none.
            store_component_stats: Whether components record statistics.

        Raises:
            RequestError: there is no input or no output, or one has no rows or the same one twice.
        """
        return ComputationRequest(
            inputs=tuple(IoSpecification(name=io.name, indexes=io.indexes) for io in self.inputs),
            outputs=tuple(
                IoSpecification(name=io.name, indexes=io.indexes, has_deriv=need_derivatives)
                for io in self.outputs
            ),
            need_model_derivative=need_derivatives,
            store_component_stats=store_component_stats,
        )
