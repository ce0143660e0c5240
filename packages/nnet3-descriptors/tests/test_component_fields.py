"""One declaration of a field serves config lines, files, checks and info."""

import numpy as np
import pytest
from component_forms import CONFIGS, as_text, binary, from_binary, from_config, from_text
from nnet3_descriptors.components import (
    AffineComponent,
    BatchNormComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
    NoOpComponent,
    RectifiedLinearComponent,
    TdnnComponent,
    component_class,
    component_types,
)
from nnet3_descriptors.components.declaration.properties import ComponentProperties


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


class TestConfig:
    """Config lines."""

    def test_defaults_are_those_of_kaldi(self) -> None:
        """An affine component of natural gradient gets Kaldi's settings and ranks."""
        component = from_config("NaturalGradientAffineComponent", "input-dim=100 output-dim=10")

        assert isinstance(component, NaturalGradientAffineComponent)
        assert (component.rank_in, component.rank_out) == (20, 5)
        assert (component.update_period, component.num_samples_history) == (4, 2000.0)
        assert component.alpha == 4.0
        assert component.learning_rate == pytest.approx(0.001)
        assert 0.08 < component.linear_params.std() < 0.12
        assert component.num_parameters == 1010

    def test_a_negative_rank_counts_as_not_given(self) -> None:
        """Kaldi writes -1 for a value that it chooses itself."""
        component = from_config("LinearComponent", "input-dim=8 output-dim=4 rank-in=-1")

        assert isinstance(component, LinearComponent)
        assert component.rank_in == 4

    def test_same_generator_gives_same_parameters(self) -> None:
        """Initial parameters depend only on the random generator."""
        assert from_config("AffineComponent", "input-dim=3 output-dim=2") == from_config(
            "AffineComponent", "input-dim=3 output-dim=2"
        )

    def test_without_bias(self) -> None:
        """A TDNN layer without bias adds to its output."""
        component = from_config(
            "TdnnComponent", "input-dim=2 output-dim=2 time-offsets=0 use-bias=f"
        )

        assert component.properties & ComponentProperties.PROPAGATE_ADDS
        assert component.num_parameters == 4

    def test_matrix_from_a_file(self, tmp_path) -> None:
        """The last column of the matrix is the bias."""
        path = tmp_path / "matrix"
        path.write_text(" [\n  1 2 3 \n  4 5 6 ]\n")

        component = from_config("AffineComponent", f"matrix={path} output-dim=2")

        assert isinstance(component, AffineComponent)
        np.testing.assert_array_equal([[1, 2], [4, 5]], component.linear_params)
        np.testing.assert_array_equal([3, 6], component.bias_params)


class TestOldFiles:
    """Tokens that older files lack, add or have in other places."""

    def test_tokens_that_came_later_may_be_absent(self) -> None:
        """A nonlinearity of 2015 has no derivative statistics and no self-repair."""
        component = from_text(
            "<RectifiedLinearComponent> <Dim> 2 <ValueAvg>  [ 1 2 ]\n<DerivAvg>  [ 0.5 1 ]\n"
            "<Count> 10 </RectifiedLinearComponent> "
        )

        assert isinstance(component, RectifiedLinearComponent)
        assert component.oderiv_rms.size == 0
        assert component.block_dim == 2

    def test_tokens_that_went_are_passed_over(self) -> None:
        """An affine component from 2015 has a count of updates."""
        component = from_text(
            "<NaturalGradientAffineComponent> <LearningRate> 0.1 <LinearParams>  [\n  1 2 ]\n"
            "<BiasParams>  [ 3 ]\n<RankIn> 1 <RankOut> 1 <UpdatePeriod> 4 "
            "<NumSamplesHistory> 2000 <Alpha> 4 <MaxChangePerSample> 0.075 <IsGradient> T "
            "<UpdateCount> 0 <ActiveScalingCount> 0 <MaxChangeScaleStats> 0 "
            "<NaturalGradientAffineComponent> "
        )

        assert isinstance(component, NaturalGradientAffineComponent)
        assert component.is_gradient
        assert b"UpdateCount" not in binary(component)

    def test_a_noop_that_was_a_nonlinearity(self) -> None:
        """An old NoOpComponent has statistics, and no scale."""
        component = from_text(
            "<NoOpComponent> <Dim> 2 <ValueAvg>  [ ]\n<DerivAvg>  [ ]\n<Count> 0 </NoOpComponent> "
        )

        assert component == NoOpComponent(dim=2)

    def test_one_alpha_for_both_sides(self) -> None:
        """A TDNN layer of 2017 has one alpha."""
        component = from_text(
            "<TdnnComponent> <LearningRate> 0.1 <TimeOffsets> [ 0 ]\n<LinearParams>  [\n  1 ]\n"
            "<BiasParams>  [ ]\n<OrthonormalConstraint> 0 <UseNaturalGradient> T "
            "<NumSamplesHistory> 2000 <Alpha> 3 <RankInOut> 1 1 </TdnnComponent> "
        )

        assert isinstance(component, TdnnComponent)
        assert (component.alpha_in, component.alpha_out) == (3.0, 3.0)

    def test_double_precision_is_read(self) -> None:
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
