"""The convolution over time and height: its offsets, and its initial values."""

import functools

import component_forms
import numpy as np
import pytest

SIZES = "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4"


from_config = functools.partial(component_forms.from_config, "TimeHeightConvolutionComponent")
"""The component that a config line describes."""


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
