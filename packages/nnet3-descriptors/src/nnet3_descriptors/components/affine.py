"""Affine and linear maps of the columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, info, kinds, natural_gradient, registry
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import Array, integer, matrix, vector
from nnet3_descriptors.components.declaration.initial import (
    affine_params,
    dims,
    linear_params,
    normal,
)
from nnet3_descriptors.components.declaration.properties import CONTIGUOUS, TRAINED
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property


@registry.component
class FixedAffineComponent(base.Component):
    """y = linear_params x + bias_params, not trained.

    Attributes:
        linear_params: (output_dim, input_dim).
        bias_params: (output_dim,).
    """

    PROPERTIES = Property.SIMPLE | Property.BACKPROP_ADDS
    INFO = ("input_dim", "output_dim", "linear_params", "bias_params")

    linear_params: Array = matrix(shape=("output_dim", "input_dim"), show=info.root_mean_square)
    bias_params: Array = vector(shape=("output_dim",), info="bias", show=info.mean_stddev)
    input_dim = base.input_columns(lambda self: self.linear_params.shape[1])
    output_dim = base.output_columns(lambda self: len(self.linear_params))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns parameters from a file with the bias as last column, or random (for tests)."""
        if config.has("matrix"):
            return affine_params(config, rng, bias_mean=False)
        output_dim, input_dim = dims(config)
        return {
            "linear_params": normal(rng, (output_dim, input_dim), 1.0),
            "bias_params": normal(rng, output_dim, 1.0),
        }


@base.component_family
class AffineFamily(base.UpdatableComponent):
    """y = linear_params x + bias_params.

    Attributes:
        linear_params: (output_dim, input_dim).
        bias_params: (output_dim,).
    """

    PROPERTIES = Property.SIMPLE | TRAINED

    linear_params: Array = matrix(
        parameter=True, shape=("output_dim", "input_dim"), show=info.root_mean_square_and_norms
    )
    bias_params: Array = vector(
        parameter=True, shape=("output_dim",), info="bias", show=info.mean_stddev
    )
    input_dim = base.input_columns(lambda self: self.linear_params.shape[1])
    output_dim = base.output_columns(lambda self: len(self.linear_params))


@registry.component
class AffineComponent(AffineFamily):
    """An affine map, trained by plain gradient descent."""

    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        "orthonormal_constraint",
        "linear_params",
        "bias_params",
    )

    orthonormal_constraint: float = natural_gradient.orthonormal_constraint()

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial linear and bias parameters."""
        return affine_params(config, rng, bias_mean=False)


@registry.component
class NaturalGradientAffineComponent(AffineFamily):
    """An affine map, trained by natural-gradient descent."""

    PROPERTIES = AffineFamily.PROPERTIES
    INFO = (*AffineComponent.INFO, *natural_gradient.INFO)
    OBSOLETE = (
        ("<MaxChangePerSample>", kinds.Real()),
        ("<UpdateCount>", kinds.Real()),
        ("<ActiveScalingCount>", kinds.Real()),
        ("<MaxChangeScaleStats>", kinds.Real()),
    )

    rank_in: int = natural_gradient.rank_in()
    rank_out: int = natural_gradient.rank_out()
    orthonormal_constraint: float = natural_gradient.orthonormal_constraint()
    update_period: int = natural_gradient.update_period()
    num_samples_history: float = natural_gradient.num_samples_history()
    alpha: float = natural_gradient.alpha()

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial linear and bias parameters."""
        return affine_params(config, rng, bias_mean=True)


@registry.component
class LinearComponent(base.UpdatableComponent):
    """y = params x, trained by natural-gradient descent.

    Attributes:
        params: (output_dim, input_dim).
    """

    PROPERTIES = AffineFamily.PROPERTIES | Property.PROPAGATE_ADDS
    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        "params",
        "orthonormal_constraint",
        "use_natural_gradient",
        *natural_gradient.INFO,
    )

    params: Array = matrix(
        parameter=True, shape=("output_dim", "input_dim"), show=info.root_mean_square_and_norms
    )
    orthonormal_constraint: float = natural_gradient.orthonormal_constraint()
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()
    rank_in: int = natural_gradient.rank_in(token="<RankInOut>")
    rank_out: int = natural_gradient.rank_out(token="")
    alpha: float = natural_gradient.alpha()
    num_samples_history: float = natural_gradient.num_samples_history()
    update_period: int = natural_gradient.update_period()
    input_dim = base.input_columns(lambda self: self.params.shape[1])
    output_dim = base.output_columns(lambda self: len(self.params))

    @property
    def linear_params(self) -> Array:
        """The parameters, by the name that affine types give them."""
        return self.params

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial parameters."""
        return {"params": linear_params(config, rng)}


def _initial_blocks(
    config: ConfigLine,
    rng: np.random.Generator,
    *,
    count_key: str,
    shared: bool,
    bias_stddev: float,
) -> dict[str, Any]:
    """Returns the random initial parameters of an affine map of blocks of the columns.

    Args:
        config: The line.
        rng: Source of the random values.
        count_key: The key that gives the number of blocks.
        shared: Whether all blocks have the same parameters.
        bias_stddev: Default of 'bias-stddev'.
    """
    output_dim, input_dim = dims(config)
    count = config.integer(count_key, minimum=1)
    for key, dim in (("input-dim", input_dim), ("output-dim", output_dim)):
        if dim % count != 0:
            raise config.error(f"'{count_key}' must divide '{key}', got {count}", count_key)
    rows, cols = output_dim // count if shared else output_dim, input_dim // count
    stddev = config.real("param-stddev", 1.0 / math.sqrt(cols), minimum=0.0)
    mean = config.real("bias-mean", 0.0)
    linear = normal(rng, (rows, cols), stddev)
    bias_stddev = config.real("bias-stddev", bias_stddev, minimum=0.0)
    return {"linear_params": linear, "bias_params": normal(rng, rows, bias_stddev, mean)}


AffineMap = AffineFamily | FixedAffineComponent | LinearComponent
"""Maps y = x W^T + b, with one matrix `linear_params`."""


@registry.component
class BlockAffineComponent(base.UpdatableComponent):
    """An affine map of each block of the columns: a block-diagonal matrix.

    Attributes:
        num_blocks: Number of blocks of the input and output columns.
        linear_params: (output_dim, input_dim / num_blocks), the blocks one below the other.
        bias_params: (output_dim,).
    """

    PROPERTIES = AffineFamily.PROPERTIES
    INFO = (*base.UpdatableComponent.COMMON_INFO, "num_blocks", "linear_params", "bias_params")

    num_blocks: int = integer(minimum=1)
    linear_params: Array = matrix(parameter=True, show=info.root_mean_square)
    bias_params: Array = vector(
        parameter=True, shape=("output_dim",), info="bias", show=info.mean_stddev
    )

    def check(self) -> None:
        """Raises NetworkError if the rows of the matrix do not make blocks."""
        self.require_divides("num_blocks", "output_dim")

    input_dim = base.input_columns(lambda self: self.linear_params.shape[1] * self.num_blocks)
    output_dim = base.output_columns(lambda self: len(self.linear_params))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial linear and bias parameters."""
        return _initial_blocks(config, rng, count_key="num-blocks", shared=False, bias_stddev=1.0)


@registry.component
class RepeatedAffineComponent(base.UpdatableComponent):
    """The same affine map of each block of the columns.

    Attributes:
        num_repeats: Number of blocks of the input and output columns.
        linear_params: (output_dim / num_repeats, input_dim / num_repeats).
        bias_params: (output_dim / num_repeats,).
    """

    PROPERTIES = AffineFamily.PROPERTIES | CONTIGUOUS
    INFO = (*base.UpdatableComponent.COMMON_INFO, "num_repeats", "linear_params", "bias_params")

    num_repeats: int = integer(minimum=1)
    linear_params: Array = matrix(parameter=True, show=info.root_mean_square)
    bias_params: Array = vector(
        parameter=True, shape=("output_block_dim",), info="bias", show=info.mean_stddev
    )

    @property
    def output_block_dim(self) -> int:
        """Number of columns of a block of the output."""
        return len(self.linear_params)

    input_dim = base.input_columns(lambda self: self.linear_params.shape[1] * self.num_repeats)
    output_dim = base.output_columns(lambda self: self.output_block_dim * self.num_repeats)

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial linear and bias parameters."""
        return _initial_blocks(config, rng, count_key="num-repeats", shared=True, bias_stddev=0.0)


@registry.component
class NaturalGradientRepeatedAffineComponent(RepeatedAffineComponent):
    """The same affine map of each block of the columns, trained by natural-gradient descent."""
