"""Affine and linear maps of the columns."""

from typing import Any

import numpy as np

from nnet3_descriptors.components import kinds, natural_gradient
from nnet3_descriptors.components.base import UpdatableComponent, component, component_family
from nnet3_descriptors.components.config_line import ConfigLine
from nnet3_descriptors.components.fields import Array, matrix, vector
from nnet3_descriptors.components.info import mean_stddev, root_mean_square_and_norms
from nnet3_descriptors.components.initial import affine_params, linear_params
from nnet3_descriptors.components.properties import ComponentProperties as Property


@component_family
class AffineFamily(UpdatableComponent):
    """y = linear_params x + bias_params.

    Attributes:
        linear_params: (output_dim, input_dim).
        bias_params: (output_dim,).
    """

    PROPERTIES = (
        Property.SIMPLE
        | Property.UPDATABLE
        | Property.BACKPROP_NEEDS_INPUT
        | Property.BACKPROP_ADDS
    )

    linear_params: Array = matrix(
        parameter=True, shape=("output_dim", "input_dim"), show=root_mean_square_and_norms
    )
    bias_params: Array = vector(
        parameter=True, shape=("output_dim",), info="bias", show=mean_stddev
    )

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return int(self.linear_params.shape[1])

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return int(self.linear_params.shape[0])


@component
class AffineComponent(AffineFamily):
    """An affine map, trained by plain gradient descent."""

    INFO = (
        *UpdatableComponent.COMMON_INFO,
        "orthonormal_constraint",
        "linear_params",
        "bias_params",
    )

    orthonormal_constraint: float = natural_gradient.orthonormal_constraint()

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial linear and bias parameters."""
        return affine_params(config, rng, bias_mean=False)


@component
class NaturalGradientAffineComponent(AffineFamily):
    """An affine map, trained by natural-gradient descent."""

    PROPERTIES = AffineFamily.PROPERTIES | Property.PROPAGATE_ADDS
    INFO = (
        *AffineComponent.INFO,
        "rank_in",
        "rank_out",
        "num_samples_history",
        "update_period",
        "alpha",
    )
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


@component
class LinearComponent(UpdatableComponent):
    """y = params x, trained by natural-gradient descent.

    Attributes:
        params: (output_dim, input_dim).
    """

    PROPERTIES = NaturalGradientAffineComponent.PROPERTIES
    INFO = (
        *UpdatableComponent.COMMON_INFO,
        "params",
        "orthonormal_constraint",
        "use_natural_gradient",
        "rank_in",
        "rank_out",
        "num_samples_history",
        "update_period",
        "alpha",
    )

    params: Array = matrix(
        parameter=True, shape=("output_dim", "input_dim"), show=root_mean_square_and_norms
    )
    orthonormal_constraint: float = natural_gradient.orthonormal_constraint()
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()
    rank_in: int = natural_gradient.rank_in(token="<RankInOut>")
    rank_out: int = natural_gradient.rank_out(token="")
    alpha: float = natural_gradient.alpha()
    num_samples_history: float = natural_gradient.num_samples_history()
    update_period: int = natural_gradient.update_period()

    @property
    def linear_params(self) -> Array:
        """The parameters, by the name that affine types give them."""
        return self.params

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return int(self.params.shape[1])

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return int(self.params.shape[0])

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial parameters."""
        return {"params": linear_params(config, rng)}
