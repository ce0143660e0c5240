"""Changes of examples: moved in time, cut, renamed, weighted, compressed; images changed at random.

An image is a matrix: a row for each column of pixels, from left to right, and in it the pixels from
one end to the other, each with its channels side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import NetworkError, files
from nnet3_descriptors.indexes import IndexArray, N, T

from nnet3_training import errors, fields
from nnet3_training.egs.chunks import CRandom
from nnet3_training.egs.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    FloatArray,
    PathSupervision,
    SparsePosteriors,
    StoredMatrix,
    TrainingExample,
)

Io = TypeVar("Io", ExampleInput, ExampleOutput)
Matrix = TypeVar("Matrix", FloatArray | files.CompressedMatrix, StoredMatrix)
Supervision = DenseTargets | SparsePosteriors

_TIMES = np.iinfo(np.int32)
"""The times that indexes can have."""

INPUT, OUTPUT, IVECTOR = "input", "output", "ivector"


def moved(indexes: IndexArray, frames: int) -> IndexArray:
    """Indexes, (rows, 3), with a t that is `frames` larger.

    Raises:
        ExampleError: a t is not a 32-bit number any more.
    """
    times = indexes[:, T].tolist()
    for time in (min(times, default=0) + frames, max(times, default=0) + frames):
        if not _TIMES.min <= time <= _TIMES.max:
            raise errors.ExampleError(
                f"moved by {frames} frames, an example has the time {time}; expected "
                f"{_TIMES.min} to {_TIMES.max}"
            )
    result = indexes.copy()
    result[:, T] += frames
    return result


def named(example: TrainingExample, ios: tuple[Io, ...], name: str) -> Io:
    """The input or output of that name.

    Raises:
        ExampleError: there is none.
    """
    for io in ios:
        if io.name == name:
            return io
    raise errors.ExampleError(f"example '{example.key}' has no '{name}'")


def _frame_step(output: ExampleOutput) -> int:
    """The distance in time of the frames of an output: Kaldi's frame subsampling factor.

    Raises:
        ExampleError: the output has fewer than two frames.
    """
    times = output.indexes[:, T]
    later = times[times != times[:1]]
    if not later.size:
        raise errors.ExampleError(
            f"output '{output.name}' has fewer than two frames: its step is unknown"
        )
    return int(later[0] - times[0])


def shifted(example: TrainingExample, frames: int, *, step: int | None = 1) -> TrainingExample:
    """The example moved by some frames, what is named "ivector" excepted.

    Outputs move by the nearest multiple of their step, so that the network is also trained on input
    frames between two output frames.

    Args:
        example: An example of any kind.
        frames: The number of frames.
        step: The distance in time of the frames of its outputs; None to take it from the indexes.

    Raises:
        ExampleError: an output has one frame only, and no step is given; or a t is not a 32-bit
            number any more.
    """
    if not frames:
        return example

    def change(io: Io, step: int) -> Io:
        if io.name == IVECTOR:
            return io
        distance = step * ((2 * frames + step) // (2 * step))
        return attrs.evolve(io, indexes=moved(io.indexes, distance))

    return attrs.evolve(
        example,
        inputs=[change(io, 1) for io in example.inputs],
        outputs=[change(io, step or _frame_step(io)) for io in example.outputs],
    )


def check_single(example: TrainingExample) -> None:
    """Raises an ExampleError if an example has several sequences, or an io without rows."""
    for io in example.ios:
        if not len(io.indexes):
            raise errors.ExampleError(f"example '{example.key}' has no rows of '{io.name}'")
    if any(bool(io.indexes[:, N].any()) for io in example.ios):
        raise errors.ExampleError(
            f"example '{example.key}' has several sequences: change it before merging"
        )


def input_context(example: TrainingExample) -> tuple[int, int]:
    """The numbers of frames of "input" before the first and after the last of "output".

    Raises:
        ExampleError: the example has several sequences, or lacks this input or output.
    """
    check_single(example)
    given = named(example, example.inputs, INPUT).indexes[:, T]
    times = named(example, example.outputs, OUTPUT).indexes[:, T]
    # Python's integers, since differences may exceed 32 bits.
    return int(times.min()) - int(given.min()), int(given.max()) - int(times.max())


def with_context(
    example: TrainingExample, *, left: int | None, right: int | None
) -> TrainingExample:
    """The example with "input" cut to the given context around "output".

    An example that has no frames beyond this context stays as it is.

    Args:
        example: An example of one sequence.
        left: Frames before the first of the output; None for all.
        right: Frames after the last; None for all.

    Raises:
        ExampleError: the example has several sequences, or lacks this input or output.
    """
    if left is None and right is None:
        return example
    check_single(example)
    given = named(example, example.inputs, INPUT)
    times = named(example, example.outputs, OUTPUT).indexes[:, T]
    seen = given.indexes[:, T]
    # Python's integers, since sums may exceed 32 bits.
    first = int(seen.min()) if left is None else int(times.min()) - left
    last = int(seen.max()) if right is None else int(times.max()) + right
    kept = (seen >= first) & (seen <= last)
    if not kept.any():
        raise errors.ExampleError(f"example '{example.key}': no frame of 'input' is left")
    if kept.all():
        return example
    matrix: StoredMatrix = given.matrix
    if isinstance(matrix, SparsePosteriors):
        matrix = matrix.taken(np.flatnonzero(kept))
    else:  # a compressed one becomes full, as Kaldi has it
        matrix = given.values[kept]
    shorter = attrs.evolve(given, indexes=given.indexes[kept], values=matrix)
    return _with_input(example, given, shorter)


def _with_input(
    example: TrainingExample, given: ExampleInput, changed: ExampleInput
) -> TrainingExample:
    inputs = [changed if io is given else io for io in example.inputs]
    return attrs.evolve(example, inputs=inputs)


def with_frame(example: TrainingExample, frame: int) -> TrainingExample | None:
    """The example with one frame of "output"; None if it lacks this frame.

    Args:
        example: An example of one sequence.
        frame: Its t.

    Raises:
        ExampleError: the example has several sequences, or no such output.
    """
    check_single(example)
    known = named(example, example.outputs, OUTPUT)
    kept = known.indexes[:, T] == frame
    if not kept.any():
        return None
    if kept.all():
        return example
    part = _supervision(example, known).taken(np.flatnonzero(kept))
    return with_output(
        example, lambda io: attrs.evolve(io, indexes=io.indexes[kept], supervision=part)
    )


def _supervision(example: TrainingExample, output: ExampleOutput) -> Supervision:
    known = output.supervision
    if not isinstance(known, DenseTargets | SparsePosteriors):
        raise errors.ExampleError(
            f"example '{example.key}': '{output.name}' has neither dense targets nor posteriors"
        )
    return known


def with_output(
    example: TrainingExample, change: Callable[[ExampleOutput], ExampleOutput]
) -> TrainingExample:
    """The example with "output" changed.

    Raises:
        ExampleError: it has no such output.
    """
    wanted = named(example, example.outputs, OUTPUT)
    outputs = [change(io) if io is wanted else io for io in example.outputs]
    return attrs.evolve(example, outputs=outputs)


def with_output_name(example: TrainingExample, name: str) -> TrainingExample:
    """The example with another name for "output".

    Raises:
        ExampleError: it has no such output.
    """
    return with_output(example, lambda io: attrs.evolve(io, name=name))


def with_weight(example: TrainingExample, factor: float) -> TrainingExample:
    """The example with the supervision of "output", or the weight of a chain model's, multiplied.

    Raises:
        ExampleError: it has no such output.
    """

    def weighted(output: ExampleOutput) -> ExampleOutput:
        known: Any = output.supervision
        if isinstance(output.supervision, PathSupervision):
            changed: Any = attrs.evolve(known, weight=known.weight * factor)
        else:
            changed = scaled(_supervision(example, output), factor)
        return attrs.evolve(output, supervision=changed)

    return with_output(example, weighted)


def scaled(supervision: Supervision, factor: float) -> Supervision:
    """Posteriors or targets multiplied by a number."""
    if isinstance(supervision, SparsePosteriors):
        return attrs.evolve(supervision, weights=supervision.weights * np.float32(factor))
    matrix = supervision.matrix
    if isinstance(matrix, files.CompressedMatrix):
        return DenseTargets(values=matrix.scaled(factor))
    return DenseTargets(values=matrix * np.float32(factor))


def with_compression(example: TrainingExample) -> TrainingExample:
    """The example with full matrices compressed, of inputs and dense targets.

    Raises:
        ExampleError: a number is not finite.
    """
    inputs = [attrs.evolve(io, values=_compressed(example, io.matrix)) for io in example.inputs]
    outputs = [
        attrs.evolve(
            io, supervision=DenseTargets(values=_compressed(example, io.supervision.matrix))
        )
        if isinstance(io.supervision, DenseTargets)
        else io
        for io in example.outputs
    ]
    return attrs.evolve(example, inputs=inputs, outputs=outputs)


def _compressed(example: TrainingExample, matrix: Matrix) -> Matrix | files.CompressedMatrix:
    if isinstance(matrix, files.CompressedMatrix | SparsePosteriors):
        return matrix
    try:
        return files.compressed.compress(matrix)
    except NetworkError as error:
        raise errors.ExampleError(f"example '{example.key}': {error}") from error


_FILL_MODES: Final = ("nearest", "reflect")
_UNIT: Final = 1e-5
"""A transform nearer to the unit matrix than this changes nothing."""

Image = npt.NDArray[np.float32]


@attrs.frozen(kw_only=True)
class ImageAugmentation:
    """How images are changed; names and defaults are those of Kaldi's nnet3-egs-augment-image.

    Attributes:
        num_channels: Number of channels (colours) of a pixel.
        horizontal_flip_prob: How often an image is mirrored, left to right.
        horizontal_shift: The largest shift to the left or right, in widths of the image. The shift
            is uniform between both, and rounded to pixels.
        vertical_shift: The same along the height.
        rotation_degree: The largest rotation, in degrees. The angle is uniform between both
            directions.
        rotation_prob: How often an image is rotated.
        fill_mode: Pixels beyond the borders: "nearest" for the nearest pixel, "reflect" for the
            image mirrored at its borders.

    Raises:
        ExampleError: a value is out of range.
    """

    num_channels: int = fields.integer(errors.ExampleError, 1, least=1)
    horizontal_flip_prob: float = fields.number(errors.ExampleError, 0.0, most=1.0)
    horizontal_shift: float = fields.number(errors.ExampleError, 0.0, most=1.0)
    vertical_shift: float = fields.number(errors.ExampleError, 0.0, most=1.0)
    rotation_degree: float = fields.number(errors.ExampleError, 0.0, most=180.0)
    rotation_prob: float = fields.number(errors.ExampleError, 0.0, most=1.0)
    fill_mode: str = "nearest"

    def __attrs_post_init__(self) -> None:
        if self.fill_mode not in _FILL_MODES:
            raise errors.ExampleError(
                f"fill_mode must be {' or '.join(map(repr, _FILL_MODES))} (got {self.fill_mode!r})"
            )

    def changed(self, example: TrainingExample, rng: CRandom) -> TrainingExample:
        """The example with its input "input", an image, changed at random.

        Args:
            example: The example. Its image is no more compressed in the result.
            rng: Draws the shifts, then whether to flip, then whether to rotate, and the angle.

        Raises:
            ExampleError: it has no such input, or several sequences; or the number of columns is no
                multiple of that of channels.
        """
        check_single(example)
        given = named(example, example.inputs, INPUT)
        rows, columns = given.matrix.shape
        if columns % self.num_channels:
            raise errors.ExampleError(
                f"example '{example.key}': expected columns of 'input' that are a multiple of "
                f"{self.num_channels} channels, found {columns}"
            )
        transform = self._drawn(rows, columns // self.num_channels, rng)
        values = given.values
        if np.abs(transform - np.eye(3)).max() > _UNIT:
            image = values.reshape(rows, -1, self.num_channels)
            values = _transformed(image, transform, self.fill_mode).reshape(rows, columns)
        return _with_input(example, given, attrs.evolve(given, values=values))

    def _drawn(self, width: int, height: int, rng: CRandom) -> Image:
        """(3, 3), from places (x, y, 1) in the new image, from its centre, to places in the old."""
        shifts = [
            (2.0 * rng.uniform() - 1.0) * share * size
            for share, size in ((self.horizontal_shift, width), (self.vertical_shift, height))
        ]
        shift = np.eye(3, dtype=np.float32)
        shift[:2, 2] = [math.copysign(math.floor(abs(each) + 0.5), each) for each in shifts]
        if rng.with_probability(self.horizontal_flip_prob):
            shift[0, 0] = -1.0
        rotation = np.eye(3, dtype=np.float32)
        if rng.uniform() <= self.rotation_prob:
            degrees = 2.0 * self.rotation_degree * rng.uniform() - self.rotation_degree
            angle = math.radians(degrees)
            rotation[:2, :2] = [
                [math.cos(angle), -math.sin(angle)],
                [math.sin(angle), math.cos(angle)],
            ]
        return rotation @ shift


def _transformed(image: Image, transform: Image, fill_mode: str) -> Image:
    """An image whose pixels are those of other places, interpolated between four pixels.

    Args:
        image: (width, height, channels).
        transform: See `ImageAugmentation._drawn`.
        fill_mode: Pixels beyond the borders.
    """
    sizes = np.array(image.shape[:2])
    centre = (sizes - 1) / 2
    places = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1) - centre
    old = places @ transform[:2, :2].T + transform[:2, 2] + centre  # (width, height, 2)
    low = np.floor(old).astype(np.int64)
    shares = old - low
    result = np.zeros(image.shape)
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x, y = np.moveaxis(_inside(low + corner, sizes, fill_mode), -1, 0)
        weights = np.where(corner, shares, 1.0 - shares).prod(axis=-1)
        result += weights[..., None] * image[x, y]
    return result.astype(np.float32)


def _inside(
    places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], fill_mode: str
) -> npt.NDArray[np.int64]:
    """Places, (width, height, 2), moved into an image of these sizes."""
    if fill_mode == "nearest":
        return np.clip(places, 0, sizes - 1)
    period = np.maximum(2 * (sizes - 1), 1)
    inside = places % period
    return np.minimum(inside, period - inside)
