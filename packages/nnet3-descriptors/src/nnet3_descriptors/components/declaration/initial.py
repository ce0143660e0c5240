"""Initial parameters, as config lines describe them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors import errors, limits
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.files.source import read_matrix, read_vector

Array = NDArray[np.float32]


def normal(
    rng: np.random.Generator, shape: int | tuple[int, int], stddev: float, mean: float = 0.0
) -> Array:
    """Returns normally distributed float32 values of the given shape.

    Raises:
        NetworkError: the shape is out of range.
    """
    _check_shape(shape)
    values: Array = rng.standard_normal(shape, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        values *= np.float32(stddev)
        values += np.float32(mean)
    return values


def normal_vector(
    config: ConfigLine,
    rng: np.random.Generator,
    size_key: str,
    prefix: str,
    *,
    mean: float = 0.0,
    stddev: float = 0.0,
) -> Array:
    """Returns a vector whose size and distribution the line gives, as 'PREFIX-mean' and so on.

    Args:
        config: The line.
        rng: Source of the values.
        size_key: The key that gives their number.
        prefix: The beginning of the other keys.
        mean: The default mean.
        stddev: The default standard deviation; if it is 0, all are equal.
    """
    size = config.integer(size_key, minimum=1)
    mean = config.real(f"{prefix}-mean", mean)
    return normal(rng, size, config.real(f"{prefix}-stddev", stddev, minimum=0.0), mean)


def filled(shape: int | tuple[int, ...], value: float) -> Array:
    """Returns a float32 array of the given shape that holds one value.

    Raises:
        NetworkError: the shape is out of range.
    """
    _check_shape(shape)
    return np.full(shape, value, dtype=np.float32)


def _check_shape(shape: int | tuple[int, ...]) -> None:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if min(sizes) < 0:
        raise errors.NetworkError(f"initial values cannot have the shape {shape}")
    for size in sizes:
        limits.check_limit("dim", size, f"a dimension of the initial values, {shape}")
    what = f"initial values of the shape {shape}, besides those of other components"
    limits.check_limit("parameters", math.prod(sizes), what)


def matrix_from_file(config: ConfigLine, key: str) -> Array:
    """Returns the matrix in the Kaldi file that a key of the line names.

    Raises:
        ModelFileError: the file cannot be read.
        ConfigError: the matrix is empty.
    """
    matrix = read_matrix(config.text(key))
    if matrix.size == 0:
        raise config.error(f"the matrix in '{config.text(key)}' is empty", key)
    return matrix


def vector_from_file(config: ConfigLine, key: str) -> Array:
    """Returns the vector in the Kaldi file that a key of the line names.

    Raises:
        ModelFileError: the file cannot be read.
        ConfigError: the vector is empty.
    """
    vector = read_vector(config.text(key))
    if vector.size == 0:
        raise config.error(f"the vector in '{config.text(key)}' is empty", key)
    return vector


def dims(config: ConfigLine) -> tuple[int, int]:
    """Returns 'output-dim' and 'input-dim'."""
    return config.integer("output-dim", minimum=1), config.integer("input-dim", minimum=1)


def check_dims(config: ConfigLine, shape: tuple[int, int]) -> None:
    """Raises ConfigError if the line gives dimensions that are not those of a matrix (out, in)."""
    for key, found in zip(("output-dim", "input-dim"), shape, strict=True):
        if config.has(key) and config.integer(key) != found:
            given = config.text(key)
            raise config.error(f"'{key}' must be that of the matrix, {found}, got {given}", key)


def linear_params(config: ConfigLine, rng: np.random.Generator) -> Array:
    """Returns the matrix (output_dim, input_dim) of a linear map, from a file or random.

    The default standard deviation is 1 / sqrt(input_dim).
    """
    if config.has("matrix"):
        matrix = matrix_from_file(config, "matrix")
        check_dims(config, matrix.shape)
        return matrix
    shape = dims(config)
    stddev = config.real("param-stddev", 1.0 / math.sqrt(shape[1]), minimum=0.0)
    return normal(rng, shape, stddev)


def affine_params(
    config: ConfigLine, rng: np.random.Generator, *, bias_mean: bool
) -> dict[str, Any]:
    """Returns `linear_params` (output_dim, input_dim) and `bias_params` (output_dim,).

    They come from a file that holds both side by side, bias last, or are random.

    Args:
        config: The line.
        rng: Source of the random values.
        bias_mean: Whether the type has the key 'bias-mean'.
    """
    if config.has("matrix"):
        matrix = matrix_from_file(config, "matrix")
        if matrix.shape[1] < 2:
            found = f"got {matrix.shape[1]}"
            raise config.error(
                f"the matrix must have 2 columns at least, the last for the bias, {found}", "matrix"
            )
        check_dims(config, (matrix.shape[0], matrix.shape[1] - 1))
        return {"linear_params": matrix[:, :-1], "bias_params": matrix[:, -1]}
    linear = linear_params(config, rng)
    stddev = config.real("bias-stddev", 1.0, minimum=0.0)
    mean = config.real("bias-mean", 0.0) if bias_mean else 0.0
    return {"linear_params": linear, "bias_params": normal(rng, len(linear), stddev, mean)}
