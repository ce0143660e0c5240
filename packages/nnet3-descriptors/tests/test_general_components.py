"""Types that depend on indexes, and GRUs: config lines, errors, files."""

from typing import Any

import numpy as np
import pytest
from component_forms import as_text, binary, from_binary, from_config, from_text
from nnet3_descriptors import components as c


class TestModes:
    """Tokens that are there where a setting is on, some of them of a branch of Kaldi."""

    @pytest.mark.parametrize(
        ("tokens", "expected", "info"),
        [
            ("", {}, ""),
            ("<TestMode> <Continuous> ", {"test_mode": True, "continuous": True},
             ", continuous=true"),
            ("<SpecAugmentMaxProportion> 0.5 ", {"specaugment_max_proportion": 0.5},
             ", specaugment-max-proportion=0.5, specaugment-max-regions=1"),
            ("<SpecAugmentMaxProportion> 0.5 <SpecAugmentMaxRegions> 2 <TestMode> ",
             {"specaugment_max_proportion": 0.5, "specaugment_max_regions": 2, "test_mode": True},
             ", specaugment-max-proportion=0.5, specaugment-max-regions=2"),
            ("<PerframeDropout> <Continuous> ", {"dropout_per_frame": True, "continuous": True},
             ", continuous=true, per_frame=true"),
        ],
    )  # fmt: skip
    def test_dropout_of_every_era(self, tokens: str, expected: dict[str, Any], info: str) -> None:
        """A setting that a file does not mention is off, and is not written."""
        text = (
            "<GeneralDropoutComponent> <Dim> 4 <BlockDim> 2 <TimePeriod> 10 "
            f"<DropoutProportion> 0.25 {tokens}</GeneralDropoutComponent> "
        )
        component = from_text(text)

        assert component == c.GeneralDropoutComponent(
            dim=4, block_dim=2, time_period=10, dropout_proportion=0.25, **expected
        )
        assert text == as_text(component)
        assert component.info() == (
            "GeneralDropoutComponent, dim=4, block-dim=2, dropout-proportion=0.25"
            f"{info}, time-period=10"
        )

    def test_test_mode_of_a_time_mask(self) -> None:
        """The token by itself means test mode."""
        text = (
            "<SpecAugmentTimeMaskComponent> <Dim> 4 <ZeroedProportion> 0.25 <TimeMaskMaxFrames> 10 "
            "<TestMode> </SpecAugmentTimeMaskComponent> "
        )
        component = from_text(text)

        assert component == c.SpecAugmentTimeMaskComponent(dim=4, test_mode=True)
        assert text == as_text(component)
        assert as_text(component.with_test_mode(False)) == text.replace("<TestMode> ", "")


class TestStatistics:
    """Statistics in files and in info."""

    ATTENTION = c.RestrictedAttentionComponent(
        num_heads=2,
        key_dim=4,
        value_dim=3,
        num_left_inputs=1,
        num_right_inputs=0,
        stats_count=4,
        entropy_stats=[1 / 3, 2],
        posterior_stats=[[1, 3], [2, 2]],
    )

    def test_those_of_attention_are_double(self) -> None:
        """Statistics of attention keep the double precision of files."""
        component = self.ATTENTION
        data = binary(component)

        assert b"<EntropyStats> DV \x04\x02\0\0\0" + np.float64([1 / 3, 2]).tobytes() in data
        assert b"<PosteriorStats> DM \x04\x02\0\0\0\x04\x02\0\0\0" in data
        assert component == from_binary(data)
        assert data == binary(from_binary(data))
        assert component.entropy_stats.dtype == np.float64
        assert from_binary(data).entropy_stats[0] == 1 / 3

    def test_those_of_attention_in_info(self) -> None:
        """Statistics of attention are divided by the number of frames, in Kaldi's format."""
        assert self.ATTENTION.info().endswith(
            ", key-scale=0.5, entropy=0.0833333,0.5, posterior-stats[0]=0.25,0.75, "
            "posterior-stats[1]=0.5,0.5, stats-count=4"
        )
        assert "entropy" not in self.ATTENTION.replace(stats_count=0.0).info()

    def test_those_of_a_gru_in_info(self) -> None:
        """Averages are shown if any frames were counted."""
        component = from_config("GruNonlinearityComponent", "cell-dim=2").replace(
            count=1234.0, self_repair_total=617.0, value_avg=[0.5, -0.5], deriv_avg=[0.25, 1]
        )

        assert isinstance(component, c.GruNonlinearityComponent)
        assert (
            ", self-repair-threshold=0.2, self-repair-scale=1e-05, count=1.23e+03, "
            "self-repaired-proportion=0.25, value-avg=[ 0.50 -0.50 ], deriv-avg=[ 0.25 1.0 ], "
            "alpha=4, rank-in=20, rank-out=80, update-period=4" in component.info()
        )


def test_a_constant_that_is_fixed_is_no_parameter() -> None:
    """A fixed constant is not a parameter, but still an array of the component."""
    component = c.ConstantComponent(output=[1, 2], is_updatable=False)

    assert component.parameters == ()
    assert list(component.arrays()) == ["output"]


def test_info_of_counts() -> None:
    """Counts become proportions; any count that a file can hold is shown, even an infinite one."""
    component = c.BackpropTruncationComponent(
        dim=2, num_clipped=1, num_zeroed=3, count=4, count_zeroing_boundaries=6
    )

    assert component.info() == (
        "BackpropTruncationComponent, dim=2, scale=1, count=4, recurrence-interval=1, "
        "clipping-threshold=30, clipped-proportion=0.25, zeroing-threshold=15, "
        "zeroing-interval=20, zeroed-proportion=0.5, count-zeroing-boundaries=6"
    )
    clipped = c.ClipGradientComponent(dim=2, num_clipped=1, count=4, self_repair_scale=0.0)
    assert clipped.info().endswith("clipped-proportion=0.25")
    endless = component.replace(count_zeroing_boundaries=np.inf).info()
    assert endless.endswith(", zeroed-proportion=0, count-zeroing-boundaries=inf")
