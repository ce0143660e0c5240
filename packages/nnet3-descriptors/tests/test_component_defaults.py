"""Kaldi's values for what config lines leave out."""

import itertools
from typing import Any

import numpy as np
import pytest
from component_forms import from_config

ATTENTION = "key-dim=4 value-dim=3 num-left-inputs=2 num-right-inputs=1"
COMPOSITE = "num-components=1 component1='type=TanhComponent dim=6'"
CONVOLUTION = (
    "num-filters-in=16 num-filters-out=200 height-in=4 height-out=4 time-offsets=-1,0,1 "
    "height-offsets=-1,0,1"
)


@pytest.mark.parametrize(
    ("type_name", "text", "field", "mean", "stddev"),
    [
        ("NaturalGradientAffineComponent", "input-dim=100 output-dim=40",
         "linear_params", 0, 0.1),
        ("TimeHeightConvolutionComponent", CONVOLUTION, "linear_params", 0, 1 / 12),
        ("TimeHeightConvolutionComponent", CONVOLUTION, "bias_params", 0, 0),
        ("FixedAffineComponent", "input-dim=50 output-dim=90", "linear_params", 0, 1),
        ("FixedAffineComponent", "input-dim=1 output-dim=4000", "bias_params", 0, 1),
        ("FixedScaleComponent", "dim=4000", "scales", 0, 1),
        ("FixedScaleComponent", "dim=4 scale=-0.5", "scales", -0.5, 0),
        ("FixedBiasComponent", "dim=4000", "bias", 0, 1),
        ("BlockAffineComponent", "input-dim=40 output-dim=1000 num-blocks=10",
         "linear_params", 0, 0.5),
        ("BlockAffineComponent", "input-dim=2 output-dim=4000 num-blocks=2", "bias_params", 0, 1),
        ("RepeatedAffineComponent", "input-dim=32 output-dim=2000 num-repeats=2",
         "linear_params", 0, 0.25),
        ("RepeatedAffineComponent", "input-dim=2 output-dim=2 num-repeats=2", "bias_params", 0, 0),
        ("RepeatedAffineComponent",
         "input-dim=2 output-dim=8000 num-repeats=2 bias-mean=2 bias-stddev=0.5",
         "bias_params", 2, 0.5),
        ("PerElementScaleComponent", "dim=7", "scales", 1, 0),
        ("PerElementScaleComponent", "dim=4000 param-mean=3 param-stddev=2", "scales", 3, 2),
        ("NaturalGradientPerElementScaleComponent", "dim=7", "scales", 1, 0),
        ("PerElementOffsetComponent", "dim=7", "offsets", 0, 0),
        ("PerElementOffsetComponent", "dim=8000 block-dim=4000 param-mean=3 param-stddev=2",
         "offsets", 3, 2),
        ("ScaleAndOffsetComponent", "dim=7", "scales", 1, 0),
        ("ScaleAndOffsetComponent", "dim=7", "offsets", 0, 0),
        ("ConstantFunctionComponent", "input-dim=1 output-dim=7", "output", 0, 0),
        ("ConstantFunctionComponent", "input-dim=1 output-dim=4000 output-mean=2 output-stddev=3",
         "output", 2, 3),
        ("ConvolutionComponent",
         "input-x-dim=4 input-y-dim=4 input-z-dim=4 filt-x-dim=2 filt-y-dim=2 filt-x-step=1 "
         "filt-y-step=1 num-filters=400", "filter_params", 0, 0.25),
        ("ConvolutionComponent",
         "input-x-dim=1 input-y-dim=1 input-z-dim=1 filt-x-dim=1 filt-y-dim=1 filt-x-step=1 "
         "filt-y-step=1 num-filters=4000", "bias_params", 0, 1),
        ("LstmNonlinearityComponent", "cell-dim=2000", "params", 0, 1),
        ("ConstantComponent", "output-dim=7", "output", 0, 0),
        ("ConstantComponent", "output-dim=4000 output-mean=2 output-stddev=3", "output", 2, 3),
        ("GruNonlinearityComponent", "cell-dim=64 recurrent-dim=16", "w_h", 0, 1 / 8),
        ("GruNonlinearityComponent", "cell-dim=64 param-stddev=2", "w_h", 0, 2),
        ("OutputGruNonlinearityComponent", "cell-dim=4000", "w_h", 0, 1),
        ("OutputGruNonlinearityComponent", "cell-dim=4000 param-mean=3 param-stddev=2",
         "w_h", 3, 2),
    ],
)  # fmt: skip
def test_initial_parameters(
    type_name: str, text: str, field: str, mean: float, stddev: float
) -> None:
    """Mean and deviation of initial parameters are Kaldi's, within four standard errors."""
    values = getattr(from_config(type_name, text), field)

    assert values.mean() == pytest.approx(mean, abs=1e-6 + 4 * stddev / values.size**0.5)
    assert values.std() == pytest.approx(stddev, abs=1e-6 + 4 * stddev / (2 * values.size) ** 0.5)


@pytest.mark.parametrize(
    ("type_name", "text", "expected"),
    [
        ("NaturalGradientAffineComponent", "input-dim=100 output-dim=10",
         {"rank_in": 20, "rank_out": 5, "update_period": 4, "num_samples_history": 2000.0,
          "alpha": 4.0, "learning_rate": float(np.float32(0.001)), "num_parameters": 1010}),
        # Kaldi writes -1 for a value that it chooses itself.
        ("LinearComponent", "input-dim=8 output-dim=4 rank-in=-1", {"rank_in": 4}),
        ("TdnnComponent", "input-dim=2 output-dim=2 time-offsets=0 use-bias=f",
         {"num_parameters": 4}),
        ("TimeHeightConvolutionComponent", CONVOLUTION,
         {"required_time_offsets": (-1, 0, 1), "time_offsets": (-1, 0, 1),
          "offsets": tuple(itertools.product((-1, 0, 1), repeat=2)), "rank_in": 73,
          "rank_out": 80, "alpha_in": 4.0, "alpha_out": 4.0, "num_minibatches_history": 4.0,
          "max_memory_mb": 200.0, "use_natural_gradient": True, "input_dim": 64,
          "output_dim": 800}),
        ("ClipGradientComponent", "dim=4",
         {"clipping_threshold": 15.0, "norm_based_clipping": False, "self_repair_target": 0.0,
          "self_repair_clipped_proportion_threshold": float(np.float32(0.01)),
          "self_repair_scale": 1.0, "num_clipped": 0, "count": 0}),
        ("DropoutComponent", "dim=4 dropout-proportion=0.5",
         {"dropout_per_frame": False, "test_mode": False}),
        ("NormalizeComponent", "input-dim=4",
         {"block_dim": 4, "target_rms": 1.0, "add_log_stddev": False, "output_dim": 4}),
        ("NormalizeComponent", "dim=4 block-dim=2 add-log-stddev=true", {"output_dim": 6}),
        ("NaturalGradientPerElementScaleComponent", "dim=4",
         {"rank": 8, "update_period": 10, "num_samples_history": 2000.0, "alpha": 4.0}),
        ("PerElementOffsetComponent", "dim=4", {"block_dim": 4, "use_natural_gradient": True}),
        ("ScaleAndOffsetComponent", "dim=4", {"rank": 20, "use_natural_gradient": True}),
        ("ConstantFunctionComponent", "input-dim=4 output-dim=2",
         {"is_updatable": True, "use_natural_gradient": True, "num_parameters": 2}),
        ("ConstantFunctionComponent", "input-dim=4 output-dim=2 is-updatable=f",
         {"num_parameters": 0}),
        ("SumBlockComponent", "input-dim=4 output-dim=2", {"scale": 1.0}),
        ("SumGroupComponent", "input-dim=6 output-dim=2", {"sizes": (3, 3)}),
        ("SumGroupComponent", "sizes=3,1", {"input_dim": 4, "output_dim": 2}),
        ("LstmNonlinearityComponent", "cell-dim=3",
         {"use_dropout": False, "count": 0.0, "input_dim": 15, "output_dim": 6}),
        ("LstmNonlinearityComponent", "cell-dim=3 use-dropout=true", {"input_dim": 18}),
        ("ConvolutionComponent",
         "input-x-dim=5 input-y-dim=4 input-z-dim=3 filt-x-dim=3 filt-y-dim=2 filt-x-step=2 "
         "filt-y-step=1 num-filters=4",
         {"input_dim": 60, "output_dim": 24, "input_vectorization": "zyx"}),
        ("CompositeComponent", COMPOSITE, {"max_rows_process": 4096}),
        ("StatisticsExtractionComponent", "input-dim=3",
         {"input_period": 1, "output_period": 1, "include_variance": True, "output_dim": 7}),
        ("StatisticsExtractionComponent", "input-dim=3 output-period=4 include-variance=false",
         {"output_dim": 4, "modulus": 4}),
        ("StatisticsPoolingComponent", "input-dim=3 left-context=0 right-context=1",
         {"input_period": 1, "num_log_count_features": 0, "output_stddevs": False,
          "variance_floor": float(np.float32(1e-10)), "output_dim": 2}),
        ("StatisticsPoolingComponent",
         "input-dim=3 left-context=0 right-context=4 num-log-count-features=2 input-period=2",
         {"output_dim": 4, "modulus": 2}),
        ("DistributeComponent", "input-dim=6 output-dim=2", {"num_blocks": 3}),
        ("BackpropTruncationComponent", "dim=4",
         {"scale": 1.0, "clipping_threshold": 30.0, "zeroing_threshold": 15.0,
          "zeroing_interval": 20, "recurrence_interval": 1, "count": 0.0}),
        ("ConstantComponent", "output-dim=4",
         {"is_updatable": True, "use_natural_gradient": True, "num_parameters": 4, "input_dim": 4}),
        ("ConstantComponent", "output-dim=4 is-updatable=false", {"num_parameters": 0}),
        ("DropoutMaskComponent", "output-dim=2",
         {"dropout_proportion": 0.5, "continuous": False, "test_mode": False, "input_dim": 2}),
        ("GeneralDropoutComponent", "dim=4",
         {"block_dim": 4, "time_period": 0, "dropout_proportion": 0.5, "continuous": False,
          "specaugment_max_proportion": 0.0, "specaugment_max_regions": 1, "test_mode": False,
          "dropout_per_frame": False}),
        ("SpecAugmentTimeMaskComponent", "dim=4",
         {"zeroed_proportion": 0.25, "time_mask_max_frames": 10, "test_mode": False}),
        ("RestrictedAttentionComponent", ATTENTION,
         {"num_heads": 1, "time_stride": 1, "num_left_inputs_required": 2,
          "num_right_inputs_required": 1, "output_context": True, "key_scale": 0.5,
          "context_dim": 4, "input_dim": 15, "output_dim": 7, "stats_count": 0.0,
          "time_offsets": (-2, -1, 0, 1), "required_time_offsets": (-2, -1, 0, 1)}),
        ("RestrictedAttentionComponent",
         f"{ATTENTION} num-heads=2 time-stride=3 num-left-inputs-required=0 output-context=false "
         "num-right-inputs-required=-1 key-scale=-1",
         {"time_offsets": (-6, -3, 0, 3), "required_time_offsets": (0, 3), "input_dim": 30,
          "output_dim": 6, "key_scale": 0.5}),
        ("GruNonlinearityComponent", "cell-dim=4",
         {"recurrent_dim": 4, "input_dim": 16, "output_dim": 8, "alpha": 4.0, "rank_in": 20,
          "rank_out": 80, "update_period": 4, "self_repair_threshold": float(np.float32(0.2)),
          "self_repair_scale": float(np.float32(1e-5)), "count": 0.0, "num_parameters": 16}),
        ("GruNonlinearityComponent", "cell-dim=4 recurrent-dim=3",
         {"input_dim": 18, "output_dim": 8, "num_parameters": 12}),
        ("OutputGruNonlinearityComponent", "cell-dim=4",
         {"input_dim": 12, "output_dim": 8, "alpha": 4.0, "rank": 8, "update_period": 10,
          "num_parameters": 4}),
    ],
)  # fmt: skip
def test_defaults(type_name: str, text: str, expected: dict[str, Any]) -> None:
    """Options missing in a config line have Kaldi's defaults."""
    component = from_config(type_name, text)

    assert expected == {name: getattr(component, name) for name in expected}
