"""One component that computes two components in a row."""

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components import (
    AffineComponent,
    BatchNormComponent,
    Component,
    DropoutComponent,
    FixedAffineComponent,
    FixedScaleComponent,
    GeneralDropoutComponent,
    LinearComponent,
    TdnnComponent,
    TimeHeightConvolutionComponent,
)
from nnet3_descriptors.components.rowwise.affine import AffineFamily
from nnet3_descriptors.errors import NetworkError

Array = NDArray[np.float64]


@attrs.frozen(kw_only=True)
class CollapseOptions:
    """The pairs of components to combine.

    Attributes:
        dropout: Dropout, then a component with linear parameters.
        batchnorm: Batch-norm, then an affine, linear or TDNN component.
        affine: A fixed or other affine component, then an affine component.
        scale: An affine component, then fixed scales.
    """

    dropout: bool = True
    batchnorm: bool = True
    affine: bool = True
    scale: bool = True


def combine(first: Component, second: Component, options: CollapseOptions) -> Component | None:
    """Returns a component that computes `second` of the output of `first`.

    The input of `second` may be several outputs of `first` side by side. The input of the combined
    component is then the same number of inputs of `first` side by side.

    Returns:
        The component; `second` itself where `first` does nothing; None if the classes of the two,
        or the options, do not allow it, or if single precision cannot hold its parameters.

    Raises:
        NetworkError: `first` is not in test mode.
    """
    with np.errstate(all="ignore"):
        combined = _combined(first, second, options)
    if combined is None or combined is second:
        return combined
    arrays = combined.parameter_arrays().values()
    return combined if all(np.isfinite(array).all() for array in arrays) else None


def _combined(first: Component, second: Component, options: CollapseOptions) -> Component | None:
    if options.dropout and isinstance(first, DropoutComponent | GeneralDropoutComponent):
        return _after_dropout(first, second)
    if options.batchnorm and isinstance(first, BatchNormComponent):
        _check_test_mode(first.test_mode)
        return _after_diagonal(first.scale, first.offset, second)
    if isinstance(first, AffineFamily | FixedAffineComponent):
        if options.affine and isinstance(second, AffineFamily):
            return _after_affine(first, second)
        if options.scale and isinstance(second, FixedScaleComponent):
            return _before_scale(first, second)
    return None


def _check_test_mode(test_mode: bool) -> None:
    if not test_mode:
        raise NetworkError("only in test mode (set_test_mode) can it be folded into the next one")


def _after_dropout(
    first: DropoutComponent | GeneralDropoutComponent, second: Component
) -> Component | None:
    """Dropout lets the part 1 - proportion pass in test mode; GeneralDropout lets all pass."""
    _check_test_mode(first.test_mode)
    is_plain = isinstance(first, DropoutComponent)
    scale = 1.0 - first.dropout_proportion if is_plain else 1.0
    match second:
        case _ if scale == 1.0:
            return second
        case LinearComponent():
            return second.replace(params=second.params * scale)
        case AffineFamily() | TdnnComponent() | TimeHeightConvolutionComponent():
            return second.replace(linear_params=second.linear_params * scale)
    return None


def _after_diagonal(scale: Array, offset: Array, second: Component) -> Component | None:
    """Returns a component for W (scale * x + offset) + b, where `second` computes W x + b."""
    if not isinstance(second, AffineFamily | LinearComponent | TdnnComponent):
        return None
    linear = second.params if isinstance(second, LinearComponent) else second.linear_params
    repeats = linear.shape[1] // len(scale)
    new_linear = linear * np.tile(scale, repeats)
    new_bias = linear @ np.tile(offset, repeats)
    if isinstance(second, LinearComponent):
        return AffineComponent(
            linear_params=new_linear.astype(np.float32),
            bias_params=new_bias.astype(np.float32),
            learning_rate=second.learning_rate,
        )
    if second.bias_params.size > 0:
        new_bias += second.bias_params
    return second.replace(linear_params=new_linear, bias_params=new_bias)


def _after_affine(
    first: AffineFamily | FixedAffineComponent, second: AffineFamily
) -> Component | None:
    """Returns the product of two affine maps, unless the first one reduces the dimension."""
    if first.input_dim > first.output_dim:
        return None
    repeats = second.input_dim // first.output_dim
    linear = second.linear_params.astype(np.float64)
    blocks = linear.reshape(second.output_dim, repeats, first.output_dim)
    new_linear = (blocks @ first.linear_params).reshape(second.output_dim, -1)
    new_bias = linear @ np.tile(first.bias_params, repeats) + second.bias_params
    return AffineComponent(
        linear_params=new_linear.astype(np.float32), bias_params=new_bias.astype(np.float32)
    )


def _before_scale(
    first: AffineFamily | FixedAffineComponent, second: FixedScaleComponent
) -> Component | None:
    """Returns an affine map whose output is scaled already."""
    if isinstance(first, FixedAffineComponent) or first.output_dim != second.input_dim:
        return None
    return first.replace(
        linear_params=first.linear_params * second.scales[:, None],
        bias_params=first.bias_params * second.scales,
    )
