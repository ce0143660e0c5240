"""The promises of every component type are those of Kaldi."""

import pytest
from component_forms import CONFIGS, from_config

KALDI = {
    "AffineComponent": 0x0063,
    "BackpropTruncationComponent": 0x0104,
    "BatchNormComponent": 0x1F85,
    "BlockAffineComponent": 0x0063,
    "ClipGradientComponent": 0x0145,
    "CompositeComponent": 0x00E3,
    "ConstantComponent": 0x0000,
    "ConstantFunctionComponent": 0x0023,
    "ConvolutionComponent": 0x006B,
    "DistributeComponent": 0x0000,
    "DropoutComponent": 0x21C1,
    "DropoutMaskComponent": 0x2000,
    "ElementwiseProductComponent": 0x0041,
    "FixedAffineComponent": 0x0021,
    "FixedBiasComponent": 0x0105,
    "FixedScaleComponent": 0x0105,
    "GeneralDropoutComponent": 0x3D04,
    "GruNonlinearityComponent": 0x00E3,
    "LinearComponent": 0x006B,
    "LogSoftmaxComponent": 0x0281,
    "LstmNonlinearityComponent": 0x0043,
    "MaxpoolingComponent": 0x00E1,
    "NaturalGradientAffineComponent": 0x0063,
    "NaturalGradientPerElementScaleComponent": 0x0147,
    "NaturalGradientRepeatedAffineComponent": 0x0C63,
    "NoOpComponent": 0x0105,
    "NormalizeComponent": 0x0C61,
    "OutputGruNonlinearityComponent": 0x00E3,
    "PerElementOffsetComponent": 0x0907,
    "PerElementScaleComponent": 0x0147,
    "PermuteComponent": 0x0001,
    "PnormComponent": 0x00C1,
    "RectifiedLinearComponent": 0x0685,
    "RepeatedAffineComponent": 0x0C63,
    "RestrictedAttentionComponent": 0x1278,
    "ScaleAndOffsetComponent": 0x0D87,
    "SigmoidComponent": 0x0285,
    "SoftmaxComponent": 0x0385,
    "SpecAugmentTimeMaskComponent": 0x3104,
    "StatisticsExtractionComponent": 0x0058,
    "StatisticsPoolingComponent": 0x00F0,
    "SumBlockComponent": 0x0029,
    "SumGroupComponent": 0x0001,
    "TanhComponent": 0x0285,
    "TdnnComponent": 0x0072,
    "TimeHeightConvolutionComponent": 0x0C72,
}
"""What Kaldi's Properties() returns for the components of `CONFIGS`, as bits."""


@pytest.mark.parametrize("type_name", CONFIGS)
def test_properties_are_those_of_kaldi(type_name: str) -> None:
    """The compiler and the optimizer rely on these flags, down to the last bit."""
    component = from_config(type_name, CONFIGS[type_name])

    assert KALDI[type_name] == component.properties
