"""Types that work row by row: config lines, errors, older files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_forms import binary, from_binary, from_config
from nnet3_descriptors import components as c
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.files.writer import BinaryWriter

COMPOSITE = (
    "num-components=3 component1='type=LinearComponent input-dim=4 output-dim=6' "
    "component2='type=BatchNormComponent dim=6' "
    "component3='type=AffineComponent input-dim=6 output-dim=2'"
)

POOLING = "input-dim=3 left-context=1 right-context=1"


def test_self_repair_of_an_lstm() -> None:
    """Sigmoids and tanhs have their own thresholds; all have the same scale."""
    component = from_config(
        "LstmNonlinearityComponent", "cell-dim=1 tanh-self-repair-threshold=0.5"
    )

    assert isinstance(component, c.LstmNonlinearityComponent)
    np.testing.assert_array_equal(
        np.float32([0.05, 0.05, 0.5, 0.05, 0.5] + 5 * [1e-5]), component.self_repair_config
    )


@pytest.mark.parametrize(
    ("type_name", "text", "field", "expected"),
    [
        ("AffineComponent", "matrix={} output-dim=2", "linear_params", [[1, 2], [4, 5]]),
        ("AffineComponent", "matrix={} output-dim=2", "bias_params", [3, 6]),
        ("FixedAffineComponent", "matrix={}", "linear_params", [[1, 2], [4, 5]]),
        ("FixedAffineComponent", "matrix={}", "bias_params", [3, 6]),
        ("ConvolutionComponent",
         "matrix={} input-x-dim=2 input-y-dim=1 input-z-dim=1 filt-x-dim=2 filt-y-dim=1 "
         "filt-x-step=1 filt-y-step=1", "filter_params", [[1, 2], [4, 5]]),
        ("FixedScaleComponent", "scales={}", "scales", [1, 2, 3]),
        ("FixedBiasComponent", "bias={}", "bias", [1, 2, 3]),
        ("PerElementScaleComponent", "vector={} dim=3", "scales", [1, 2, 3]),
        ("NaturalGradientPerElementScaleComponent", "scales={}", "scales", [1, 2, 3]),
        ("PerElementOffsetComponent", "vector={}", "offsets", [1, 2, 3]),
        ("PerElementOffsetComponent", "vector={} dim=6", "offsets", [1, 2, 3]),
    ],
)  # fmt: skip
def test_parameters_from_a_file(
    tmp_path: Path, type_name: str, text: str, field: str, expected: list[Any]
) -> None:
    """A config line may name a Kaldi file that holds a matrix or vector."""
    path = tmp_path / "array"
    is_matrix = text.startswith("matrix")
    path.write_text(" [\n  1 2 3 \n  4 5 6 ]\n" if is_matrix else " [ 1 2 3 ]\n")

    component = from_config(type_name, text.format(path))

    np.testing.assert_array_equal(expected, getattr(component, field))


@pytest.mark.parametrize(
    ("type_name", "first", "second", "difference"),
    [
        ("PerElementOffsetComponent", "dim=4", "dim=4 block-dim=2", Property.OUTPUT_CONTIGUOUS),
        ("ScaleAndOffsetComponent", "dim=4", "dim=4 block-dim=2",
         Property.INPUT_CONTIGUOUS | Property.OUTPUT_CONTIGUOUS),
        ("NormalizeComponent", "dim=4", "dim=4 block-dim=2",
         Property.INPUT_CONTIGUOUS | Property.OUTPUT_CONTIGUOUS),
        ("NormalizeComponent", "dim=4 add-log-stddev=true", "dim=4",
         Property.PROPAGATE_IN_PLACE | Property.BACKPROP_IN_PLACE),
        ("ConstantFunctionComponent", "input-dim=4 output-dim=3", "input-dim=4 output-dim=4",
         Property.PROPAGATE_IN_PLACE),
        ("ConstantFunctionComponent", "input-dim=4 output-dim=3 is-updatable=false",
         "input-dim=4 output-dim=3", Property.UPDATABLE),
        ("TdnnComponent", "input-dim=2 output-dim=2 time-offsets=0",
         "input-dim=2 output-dim=2 time-offsets=0 use-bias=f", Property.PROPAGATE_ADDS),
        ("ConstantComponent", "output-dim=4 is-updatable=false", "output-dim=4",
         Property.UPDATABLE),
        ("GeneralDropoutComponent", "dim=4", "dim=4 block-dim=2",
         Property.INPUT_CONTIGUOUS | Property.OUTPUT_CONTIGUOUS),
        ("StatisticsExtractionComponent", "input-dim=3 include-variance=false", "input-dim=3",
         Property.BACKPROP_NEEDS_INPUT),
        ("StatisticsPoolingComponent", POOLING, f"{POOLING} output-stddevs=true",
         Property.BACKPROP_NEEDS_OUTPUT),
        ("StatisticsPoolingComponent", f"{POOLING} num-log-count-features=1",
         f"{POOLING} output-stddevs=true", Property.BACKPROP_NEEDS_INPUT),
    ],
)  # fmt: skip
def test_properties_depend_on_the_configuration(
    type_name: str, first: str, second: str, difference: Property
) -> None:
    """Blocks need contiguous rows; components that change the dimension cannot work in place.

    `tests/test_component_properties.py` has Kaldi's properties of one configuration of each type.
    """
    before, after = from_config(type_name, first), from_config(type_name, second)

    assert before.properties | difference == after.properties
    assert not before.properties & difference


def test_is_gradient_is_written_twice() -> None:
    """Two types write the gradient flag at the end as well as after the learning rate."""
    scale = from_config("NaturalGradientPerElementScaleComponent", "dim=2")
    data = binary(scale.replace(is_gradient=True))

    assert data.count(b"<IsGradient> T") == 2
    assert binary(scale).count(b"<IsGradient> F") == 1
    restored = from_binary(data)
    assert isinstance(restored, c.NaturalGradientPerElementScaleComponent)
    assert "is-gradient=true" in restored.info()


def test_permutation_in_floating_point() -> None:
    """Early binary files store the column map as numbers, with a wrong last one."""
    writer = BinaryWriter()
    writer.token("<PermuteComponent>")
    writer.token("<ColumnMap>")
    writer.vector(np.float32([1.0001, 0, 0]))
    writer.token("</PermuteComponent>")

    assert from_binary(b"".join(writer.chunks)) == c.PermuteComponent(column_map=(1, 0, 2))


class TestComposite:
    """A component made of components."""

    @pytest.fixture
    def composite(self) -> c.CompositeComponent:
        """Three components in sequence."""
        component = from_config("CompositeComponent", COMPOSITE)
        assert isinstance(component, c.CompositeComponent)
        return component

    def test_parameters_are_those_of_the_parts(self, composite: c.CompositeComponent) -> None:
        """Names begin with the number of the part; statistics are not parameters."""
        assert composite.parameters == ("0.params", "2.linear_params", "2.bias_params")
        assert composite.num_parameters == 24 + 12 + 2
        assert "1.stats_mean" in composite.arrays()

    def test_parameters_of_parts_are_replaced(self, composite: c.CompositeComponent) -> None:
        """New values go to the part that has the parameter."""
        bias = np.float32([1, 2])

        changed = composite.with_parameters({"2.bias_params": bias})

        np.testing.assert_array_equal(bias, changed.arrays()["2.bias_params"])
        assert changed.components[:2] == composite.components[:2]

    def test_test_mode_reaches_the_parts(self, composite: c.CompositeComponent) -> None:
        """The batch-norm within the composite changes its mode."""
        changed = composite.with_test_mode(True)

        assert "test-mode=true" in changed.info()
        assert changed.with_test_mode(False) == composite

    def test_properties_come_from_first_and_last(self, composite: c.CompositeComponent) -> None:
        """The last part decides about the output, the first about the input, any part about memos.

        The batch-norm within makes rows depend on one another, so calls are not joined.
        """
        assert composite.properties == (
            Property.SIMPLE
            | Property.UPDATABLE
            | Property.USES_MEMO
            | Property.BACKPROP_NEEDS_INPUT
            | Property.BACKPROP_ADDS
        )
        ends_in_tanh = composite.replace(components=(*composite.components, c.TanhComponent(dim=2)))
        assert ends_in_tanh.properties & Property.BACKPROP_NEEDS_OUTPUT
        fixed = c.CompositeComponent(components=(c.TanhComponent(dim=2),))
        assert not fixed.properties & Property.UPDATABLE


def test_convolution_of_steps_that_leave_a_rest() -> None:
    """A file's filter steps need not reach the end of the input, as in Kaldi."""
    component = c.ConvolutionComponent(
        input_x_dim=4, input_y_dim=1, input_z_dim=1, filt_x_dim=1, filt_y_dim=1, filt_x_step=2,
        filt_y_step=1, filter_params=np.ones((3, 1)), bias_params=np.zeros(3),
    )  # fmt: skip

    assert component.output_dim == 6


def test_short_repr() -> None:
    """The repr of a component shows its type and sizes, not its parameters."""
    affine = from_config("AffineComponent", "input-dim=3 output-dim=2")
    relu = from_config("RectifiedLinearComponent", "dim=4")

    assert repr(affine) == "<AffineComponent: 3 -> 2 columns, 8 parameters>"
    assert repr(relu) == "<RectifiedLinearComponent: 4 -> 4 columns>"
