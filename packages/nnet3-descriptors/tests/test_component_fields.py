"""One declaration of a field serves config lines, files, checks and info."""

import re
from typing import Any

import numpy as np
import pytest
from component_forms import CONFIGS, as_text, binary, from_binary, from_config, from_text
from nnet3_descriptors.components import (
    AffineComponent,
    BatchNormComponent,
    NoOpComponent,
    component_class,
    component_types,
)


@pytest.mark.parametrize("type_name", CONFIGS)
def test_binary_form_is_read_back_as_the_same_component(type_name: str) -> None:
    """Writing and reading changes neither the component nor its bytes."""
    component = from_config(type_name, CONFIGS[type_name])

    restored = from_binary(binary(component))

    assert component == restored
    assert binary(component) == binary(restored)


@pytest.mark.parametrize("type_name", CONFIGS)
def test_text_form_is_read_back_and_written_the_same(type_name: str) -> None:
    """Text holds seven digits: a second round trip changes nothing further."""
    written = as_text(from_config(type_name, CONFIGS[type_name]))

    assert written == as_text(from_text(written))


def test_every_type_has_a_config() -> None:
    """The tests above cover all types, and each type has the name of its class."""
    assert set(CONFIGS) == set(component_types())
    assert all(component_class(name).type == name for name in component_types())


OLD_FILES = {
    "a nonlinearity of 2015 has no derivative statistics and no self-repair": (
        "<RectifiedLinearComponent> <Dim> 2 <ValueAvg>  [ 1 2 ]\n<DerivAvg>  [ 0.5 1 ]\n"
        "<Count> 10 </RectifiedLinearComponent> ",
        {"block_dim": 2, "value_avg": [1, 2], "oderiv_rms": [], "count": 10},
    ),
    "an affine component of 2015 has a count of updates": (
        "<NaturalGradientAffineComponent> <LearningRate> 0.1 <LinearParams>  [\n  1 2 ]\n"
        "<BiasParams>  [ 3 ]\n<RankIn> 1 <RankOut> 1 <UpdatePeriod> 4 "
        "<NumSamplesHistory> 2000 <Alpha> 4 <MaxChangePerSample> 0.075 <IsGradient> T "
        "<UpdateCount> 0 <ActiveScalingCount> 0 <MaxChangeScaleStats> 0 "
        "<NaturalGradientAffineComponent> ",
        {"is_gradient": True, "bias_params": [3]},
    ),
    "a NoOpComponent was a nonlinearity, with statistics and no scale": (
        "<NoOpComponent> <Dim> 2 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n<Count> 0 </NoOpComponent> ",
        {"dim": 2, "backprop_scale": 1.0},
    ),
    "a TDNN layer of 2017 has one alpha for both sides": (
        "<TdnnComponent> <LearningRate> 0.1 <TimeOffsets> [ 0 ]\n<LinearParams>  [\n  1 ]\n"
        "<BiasParams>  [ ]\n<OrthonormalConstraint> 0 <UseNaturalGradient> T "
        "<NumSamplesHistory> 2000 <Alpha> 3 <RankInOut> 1 1 </TdnnComponent> ",
        {"alpha_in": 3.0, "alpha_out": 3.0},
    ),
    "a normalization calls the number of columns Dim, and has statistics": (
        "<NormalizeComponent> <Dim> 2 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n<Count> 0 "
        "</NormalizeComponent> ",
        {"input_dim": 2, "block_dim": 2, "target_rms": 1.0, "add_log_stddev": False},
    ),
    "without settings of self-repair there is none, unlike in config lines": (
        "<ClipGradientComponent> <Dim> 2 <ClippingThreshold> 5 <NormBasedClipping> T "
        "<NumElementsClipped> 1 <NumElementsProcessed> 4 </ClipGradientComponent> ",
        {"self_repair_scale": 0.0, "self_repair_clipped_proportion_threshold": 1.0,
         "num_clipped": 1, "count": 4},
    ),
    "dropout is for elements only, and has no test mode": (
        "<DropoutComponent> <Dim> 2 <DropoutProportion> 0.5 </DropoutComponent> ",
        {"dim": 2, "dropout_proportion": 0.5, "dropout_per_frame": False, "test_mode": False},
    ),
    "the number of offsets is the number of columns": (
        "<PerElementOffsetComponent> <LearningRate> 0.1 <Offsets>  [ 1 2 ]\n<IsGradient> F "
        "</PerElementOffsetComponent> ",
        {"dim": 2, "offsets": [1, 2], "use_natural_gradient": True},
    ),
    **{
        f"the gradient flag of a {kind}AffineComponent stands at the end": (
            f"<{kind}AffineComponent> <LearningRate> 0.1 <{count}> 1 <LinearParams>  [\n  1 2 ]\n"
            f"<BiasParams>  [ 3 ]\n<IsGradient> T </{kind}AffineComponent> ",
            {"input_dim": 2, "output_dim": 1, "is_gradient": True},
        )
        for kind, count in (("Block", "NumBlocks"), ("Repeated", "NumRepeats"))
    },
    "the largest change of a minibatch is obsolete": (
        "<NaturalGradientPerElementScaleComponent> <LearningRate> 0.1 <Params>  [ 1 ]\n"
        "<IsGradient> F <Rank> 1 <UpdatePeriod> 2 <NumSamplesHistory> 3 <Alpha> 4 "
        "<MaxChangePerMinibatch> 5 </NaturalGradientPerElementScaleComponent> ",
        {"scales": [1], "rank": 1, "alpha": 4.0},
    ),
    "a truncation has no scale": (
        "<BackpropTruncationComponent> <Dim> 2 <ClippingThreshold> 30 <ZeroingThreshold> 15 "
        "<ZeroingInterval> 20 <RecurrenceInterval> 1 <NumElementsClipped> 1 "
        "<NumElementsZeroed> 3 <NumElementsProcessed> 4 <NumZeroingBoundaries> 6 "
        "</BackpropTruncationComponent> ",
        {"scale": 1.0, "count": 4.0, "recurrence_interval": 1},
    ),
    "a mask has no test mode, and is not continuous": (
        "<DropoutMaskComponent> <OutputDim> 2 <DropoutProportion> 0.5 </DropoutMaskComponent> ",
        {"output_dim": 2, "dropout_proportion": 0.5, "continuous": False, "test_mode": False},
    ),
}  # fmt: skip
"""Tokens that older files lack, add, or have with another name or place; and what they mean."""


@pytest.mark.parametrize(("text", "expected"), OLD_FILES.values(), ids=OLD_FILES)
def test_old_files(text: str, expected: dict[str, Any]) -> None:
    """A file that an older Kaldi wrote is read, and is not written with tokens that went."""
    component = from_text(text)

    assert component.type == text[1 : text.index(">")]
    for name, value in expected.items():
        np.testing.assert_array_equal(getattr(component, name), value)
    assert not {"UpdateCount", "MaxChangePerMinibatch"} & set(
        re.findall(r"\w+", as_text(component))
    )


def test_double_precision_is_read() -> None:
    """Arrays and numbers of double precision become single."""
    data = binary(NoOpComponent(dim=2, backprop_scale=0.5))
    number = np.float64(0.5).tobytes()
    data = data.replace(b"\x04" + np.float32(0.5).tobytes(), b"\x08" + number)

    assert from_binary(data) == NoOpComponent(dim=2, backprop_scale=0.5)


class TestValues:
    """Components as Python values."""

    def test_parameters_are_read_only_float32(self) -> None:
        """Arrays that a caller could still write to are copied."""
        weights = np.ones((2, 3))
        component = AffineComponent(linear_params=weights, bias_params=[0, 0])
        weights[0, 0] = 5

        assert component.linear_params.dtype == np.float32
        assert not component.linear_params.flags.writeable
        assert component.linear_params[0, 0] == 1

    def test_read_only_views_are_copied(self) -> None:
        """A read-only view of an array that the caller can still write to is copied."""
        buffer = np.zeros(2, np.float32)
        component = AffineComponent(
            linear_params=np.ones((2, 3)), bias_params=np.broadcast_to(buffer, buffer.shape)
        )
        buffer[:] = 5

        assert component.bias_params.tolist() == [0, 0]

    def test_frozen_arrays_are_shared(self) -> None:
        """An array that nobody can write to, or a part of one, is taken as it is."""
        biases = np.zeros(4, np.float32)
        biases.flags.writeable = False
        component = AffineComponent(linear_params=np.ones((2, 3)), bias_params=biases[:2])

        assert np.shares_memory(component.bias_params, biases)

    def test_with_parameters(self) -> None:
        """Parameters are replaced by name, with the same shape."""
        component = from_config("AffineComponent", CONFIGS["AffineComponent"])

        changed = component.with_parameters({"bias_params": np.array([1, 2], np.float32)})

        assert component.parameters == ("linear_params", "bias_params")
        np.testing.assert_array_equal([1, 2], changed.parameter_arrays()["bias_params"])

    def test_equal_components_hash_equally(self) -> None:
        """Components compare by value, arrays included."""
        first = BatchNormComponent(dim=2, stats_mean=[1, 2], stats_var=[1, 1], count=1)
        second = BatchNormComponent(dim=2, stats_mean=[1, 2], stats_var=[1, 1], count=1)

        assert first == second
        assert hash(first) == hash(second)
        assert first != BatchNormComponent(dim=2)

    def test_undefined_numbers_equal_themselves(self) -> None:
        """A component with NaN as a number or in an array is equal after a round trip."""
        component = NoOpComponent(dim=4, backprop_scale=float("nan"))

        assert component == from_binary(binary(component))
        assert hash(component) == hash(from_binary(binary(component)))
        assert component != NoOpComponent(dim=4)


@pytest.mark.parametrize("bias", [[np.inf, -np.inf], [3e38, 3e38]])
def test_info_of_extreme_parameters(bias: list[float]) -> None:
    """The info of parameters whose mean or deviation is not finite says so, without a warning."""
    component = from_config("FixedBiasComponent", "dim=2").replace(bias=np.array(bias))

    assert component.info().startswith("FixedBiasComponent, input-dim=2, output-dim=2, bias-")
    assert "nan" in component.info() or "inf" in component.info()


def test_initial_values_of_extreme_deviation() -> None:
    """Initial values may overflow; that is no warning."""
    component = from_config("PerElementOffsetComponent", "dim=100 param-mean=0 param-stddev=3e38")

    assert np.isinf(component.offsets).any()


def test_scale_and_offset_of_batch_norm() -> None:
    """In test mode batch-norm gives each column the target as root mean square, and the mean 0."""
    norm = BatchNormComponent(
        dim=4,
        block_dim=2,
        epsilon=0.5,
        target_rms=3.0,
        count=10,
        stats_mean=[1, -2],
        stats_var=[3.5, -0.1],
    )

    assert norm.scale.tolist() == [1.5, 3.0 / np.sqrt(0.5)]
    assert norm.offset.tolist() == [-1.5, 2.0 * norm.scale[1]]


def test_batch_norm_without_an_offset() -> None:
    """A target that single precision makes infinite gives no warning, but an offset that is NaN."""
    norm = BatchNormComponent(dim=1, target_rms=1e300, count=10)

    assert norm.scale.tolist() == [np.inf]
    assert np.isnan(norm.offset).all()
