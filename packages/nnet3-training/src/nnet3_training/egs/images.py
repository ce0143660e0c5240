"""Images in examples: flipped, shifted and rotated at random.

An image is a matrix: a row for each column of pixels, from left to right, and in it the pixels from
one end to the other, each with its channels side by side.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_training.egs.c_random import CRandom
from nnet3_training.egs.changes import INPUT, check_single, named
from nnet3_training.errors import ExampleError
from nnet3_training.examples import TrainingExample

_FILL_MODES: Final = ("nearest", "reflect")
_UNIT: Final = 1e-5
"""A transform nearer to the unit matrix than this changes nothing."""

Matrix = npt.NDArray[np.float32]


def _from_zero_to(largest: float) -> Any:
    """A field for a number from 0 to `largest`."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not (isinstance(value, Real) and 0.0 <= float(value) <= largest):
            raise ExampleError(f"{field.name} must be from 0 to {largest:g} (got {value!r})")

    return attrs.field(default=0.0, validator=check)


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

    num_channels: int = 1
    horizontal_flip_prob: float = _from_zero_to(1.0)
    horizontal_shift: float = _from_zero_to(1.0)
    vertical_shift: float = _from_zero_to(1.0)
    rotation_degree: float = _from_zero_to(180.0)
    rotation_prob: float = _from_zero_to(1.0)
    fill_mode: str = "nearest"

    def __attrs_post_init__(self) -> None:
        channels: object = self.num_channels
        if not isinstance(channels, int | np.integer) or channels < 1:
            raise ExampleError(f"num_channels must be an integer >= 1 (got {channels!r})")
        if self.fill_mode not in _FILL_MODES:
            raise ExampleError(
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
            raise ExampleError(
                f"example '{example.key}': expected columns of 'input' that are a multiple of "
                f"{self.num_channels} channels, found {columns}"
            )
        transform = self._drawn(rows, columns // self.num_channels, rng)
        values = given.values
        if np.abs(transform - np.eye(3)).max() > _UNIT:
            image = values.reshape(rows, -1, self.num_channels)
            values = _transformed(image, transform, self.fill_mode).reshape(rows, columns)
        changed = attrs.evolve(given, values=values)
        inputs = [changed if io is given else io for io in example.inputs]
        return attrs.evolve(example, inputs=inputs)

    def _drawn(self, width: int, height: int, rng: CRandom) -> Matrix:
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


def _transformed(image: Matrix, transform: Matrix, fill_mode: str) -> Matrix:
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
