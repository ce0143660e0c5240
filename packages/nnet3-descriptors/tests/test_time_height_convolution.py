"""The convolution over time and height: its offsets, and its initial values."""

import numpy as np
import pytest
from nnet3_descriptors.components import ConfigLine, TimeHeightConvolutionComponent
from nnet3_descriptors.errors import ConfigError, NetworkError

SIZES = "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4"


def from_config(text: str) -> TimeHeightConvolutionComponent:
    """The component that a config line describes."""
    rng = np.random.default_rng(7)
    component = TimeHeightConvolutionComponent.from_config(ConfigLine.parse(text), rng)
    assert isinstance(component, TimeHeightConvolutionComponent)
    return component


def test_defaults_are_those_of_kaldi() -> None:
    """All time offsets are required; the variance of weights preserves that of the input."""
    component = from_config(
        "num-filters-in=16 num-filters-out=200 height-in=4 height-out=4 "
        "time-offsets=-1,0,1 height-offsets=-1,0,1"
    )

    assert component.required_time_offsets == (-1, 0, 1)
    assert component.time_offsets == (-1, 0, 1)
    assert component.offsets[:4] == ((-1, -1), (-1, 0), (-1, 1), (0, -1))
    assert (component.rank_in, component.rank_out) == (73, 80)
    assert (component.alpha_in, component.alpha_out) == (4.0, 4.0)
    assert (component.num_minibatches_history, component.max_memory_mb) == (4.0, 200.0)
    assert component.use_natural_gradient
    assert component.linear_params.shape == (200, 144)
    assert component.linear_params.std() == pytest.approx(1 / 12, rel=0.02)
    assert not component.bias_params.any()
    assert (component.input_dim, component.output_dim) == (64, 800)


def test_offsets_may_be_listed_in_any_order() -> None:
    """Pairs (time, height) are sorted."""
    component = from_config(f"{SIZES} offsets=1,0;-1,1;-1,-1 required-time-offsets=1")

    assert component.offsets == ((-1, -1), (-1, 1), (1, 0))
    assert component.required_time_offsets == (1,)


def test_unit_parameters() -> None:
    """With init-unit, the filter at offset (0, 0) is the identity."""
    component = from_config(
        "num-filters-in=2 num-filters-out=2 height-in=4 height-out=4 init-unit=true "
        "time-offsets=-1,0 height-offsets=0,1"
    )

    np.testing.assert_array_equal(np.eye(2), component.linear_params[:, 4:6])
    assert component.linear_params.sum() == 2


def test_info_without_natural_gradient() -> None:
    """Info shows the settings of the natural gradient if it is used."""
    component = from_config(f"{SIZES} offsets=0,0 use-natural-gradient=false")

    assert component.info().endswith(", max-memory-mb=200, use-natural-gradient=0")
    assert (
        component.replace(use_natural_gradient=True)
        .info()
        .endswith(
            ", use-natural-gradient=1, num-minibatches-history=4, rank-in=2, rank-out=2, alpha=4"
        )
    )


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("time-offsets=0", "'height-offsets' is missing", None),
        ("time-offsets=1,0 height-offsets=0",
         "'time-offsets' must be ascending, distinct and at least one, got '1,0'", "1,0"),
        ("time-offsets=0 height-offsets=",
         "'height-offsets' must be ascending, distinct and at least one, got ''", ""),
        ("offsets=0,0;1", "'offsets' must be a list 'time,height;time,height;...', got '0,0;1'",
         "0,0;1"),
        ("offsets=0,x", "'offsets' must be a list 'time,height;time,height;...', got '0,x'", "0,x"),
        ("offsets=0,0;0,0", "TimeHeightConvolutionComponent: 'offsets' must be ascending, distinct "
         "and at least one, got ((0, 0), (0, 0))", "0,0;0,0"),
        ("offsets=0,0;1,0 required-time-offsets=2", "TimeHeightConvolutionComponent: "
         "'required-time-offsets' must be some of (0, 1), ascending and distinct, got (2,)", "2"),
        ("offsets=0,0;1,0 required-time-offsets=1,0", "TimeHeightConvolutionComponent: "
         "'required-time-offsets' must be some of (0, 1), ascending and distinct, got (1, 0)",
         "1,0"),
        ("offsets=0,0;0,4", "TimeHeightConvolutionComponent: the (time, height) offset (0, 4) is "
         "outside the input at all heights", None),
        ("offsets=0,-4;0,0", "TimeHeightConvolutionComponent: the (time, height) offset (0, -4) is "
         "outside the input at all heights", None),
        ("offsets=0,1;1,0 required-time-offsets=0",
         "TimeHeightConvolutionComponent: output height 3 has no input at the required time "
         "offsets", None),
        ("offsets=0,0 init-unit=true",
         "'init-unit' needs as many filters in as out, and the offset (0, 0)", "true"),
        ("offsets=0,0 max-memory-mb=0",
         "TimeHeightConvolutionComponent: 'max-memory-mb' must be > 0, got 0", "0"),
        ("offsets=0,0 num-minibatches-history=1",
         "TimeHeightConvolutionComponent: 'num-minibatches-history' must be > 1, got 1", "1"),
        ("offsets=0,0 height-subsample-out=0",
         "TimeHeightConvolutionComponent: 'height-subsample-out' must be >= 1, got 0", "0"),
    ],
)  # fmt: skip
def test_config_errors(text: str, message: str, marked: str | None) -> None:
    """The message names the offsets, and the span marks value or line."""
    with pytest.raises(ConfigError) as caught:
        from_config(f"{SIZES} {text}")

    line = f"{SIZES} {text}"
    assert message == caught.value.message
    assert (line if marked is None else marked) == line[slice(*caught.value.span)]


def test_heights_are_checked_without_going_through_them() -> None:
    """A height of billions, as in a damaged file, is refused at once."""
    component = from_config(f"{SIZES} offsets=0,0")

    with pytest.raises(NetworkError, match="output height 4 has no input"):
        component.replace(height_out=2**31 - 1)
