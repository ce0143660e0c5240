"""The convolution over time and height: its offsets, and its initial values."""

import functools

import component_forms
import numpy as np

SIZES = "num-filters-in=2 num-filters-out=3 height-in=4 height-out=4"


from_config = functools.partial(component_forms.from_config, "TimeHeightConvolutionComponent")
"""The component that a config line describes."""


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
