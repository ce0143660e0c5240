"""The properties of every component type are Kaldi's, and true of its arithmetic."""

import numpy as np
import pytest
from component_forms import CONFIGS, from_config
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentProperties, Nnet, set_test_mode
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from small_networks import network, stacked

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


LOOKS = ComponentProperties.BACKPROP_NEEDS_INPUT | ComponentProperties.BACKPROP_NEEDS_OUTPUT
LOOKING = {
    name: config for name, config in CONFIGS.items() if from_config(name, config).properties & LOOKS
} | {
    "CompositeComponent": (
        "num-components=2 component1='type=RectifiedLinearComponent dim=2' "
        "component2='type=TanhComponent dim=2'"
    )
}
"""Types whose backward pass looks at input or output; the composite has a part that says so."""

INPUTS = IoSpecification.from_range("input", -9, 14, 2, has_deriv=True)
OUTPUTS = IoSpecification.from_range("output", 0, 8, 2, t_step=4, has_deriv=True)
ROUNDING = 1.0e-8
"""A rounding error, much greater than those of double precision."""


def network_of(type_name: str) -> Nnet:
    """A network of one component, in test mode if it is random."""
    component = from_config(type_name, LOOKING[type_name])
    nnet = network(
        stacked(
            component.input_dim, f"c {type_name.removesuffix('Component')} {LOOKING[type_name]}"
        )
    )
    is_random = bool(component.properties & ComponentProperties.RANDOM)
    return set_test_mode(nnet, is_random)


@pytest.mark.parametrize("type_name", LOOKING)
def test_types_whose_derivative_jumps_say_so(type_name: str) -> None:
    """Rounding of values that are 0 or equal changes much in these types, and in no others."""
    nnet = network_of(type_name)
    computation = compile_computation(
        nnet, ComputationRequest(inputs=(INPUTS,), outputs=(OUTPUTS,))
    )
    computer = NnetComputer(DeviceNnet(nnet, dtype=np.float64), computation)
    component, rng = nnet.component("c"), np.random.default_rng(1)
    errors = rng.uniform(-ROUNDING, ROUNDING, (len(INPUTS.indexes), component.input_dim))
    derivative = rng.standard_normal((len(OUTPUTS.indexes), component.output_dim))

    def input_derivative(inputs: np.ndarray) -> np.ndarray:
        computer.forward({"input": inputs})
        return computer.backward({"output": derivative})["input"]

    # 1 for statistics: the first column is a count, and a count of 0 has no mean.
    equal = [np.full_like(errors, value) for value in (0.0, 1.0)]
    with np.errstate(divide="ignore", invalid="ignore"):
        changes = [input_derivative(x + errors) - input_derivative(x) for x in equal]

    jumps = any((np.abs(change) > 1.0e-3).any() for change in changes)
    assert jumps == component.BACKPROP_NEEDS_EXACT_VALUES
