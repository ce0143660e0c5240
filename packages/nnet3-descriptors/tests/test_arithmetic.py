"""Weighted sums of networks."""

import numpy as np
import pytest
from nnet3_descriptors import Nnet, parse_config, unvectorize, vectorize
from nnet3_descriptors.components import RectifiedLinearComponent
from nnet3_descriptors.editing import average, convert_repeated_to_block, scale, weighted_sum

CONFIG = """
input-node name=input dim=4
component name=affine type=AffineComponent input-dim=4 output-dim=4 learning-rate=0.25
component name=relu type=RectifiedLinearComponent dim=4
component name=norm type=BatchNormComponent dim=4
component name=both type=CompositeComponent num-components=2 \
component1='type=LinearComponent input-dim=4 output-dim=4' component2='type=TanhComponent dim=4'
component-node name=affine component=affine input=input
component-node name=relu component=relu input=affine
component-node name=norm component=norm input=relu
component-node name=both component=both input=norm
output-node name=output input=both
"""


def network(seed: int, frames: int) -> tuple[Nnet, np.ndarray]:
    """Returns a network with random parameters and the statistics of random rows, and the rows."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(seed, 1 + seed, size=(frames, 4))
    nnet = parse_config(CONFIG)
    nnet = unvectorize(nnet, rng.standard_normal(nnet.num_parameters))
    relu = nnet.component("relu").replace(
        value_avg=rows.mean(axis=0),
        count=float(frames),
        oderiv_rms=np.sqrt((rows**2).mean(axis=0)),
        oderiv_count=float(frames),
        num_dims_processed=4.0,
    )
    norm = nnet.component("norm").replace(
        stats_mean=rows.mean(axis=0), stats_var=rows.var(axis=0), count=float(frames)
    )
    return nnet.with_components({"relu": relu, "norm": norm}), rows


def test_parameters_are_added_up() -> None:
    """All parameters, also those within composites, are multiplied and added."""
    (first, _), (second, _) = network(1, 5), network(2, 9)

    total = weighted_sum([first, second], [2.0, -0.5])

    expected = 2.0 * vectorize(first) - 0.5 * vectorize(second)
    np.testing.assert_allclose(vectorize(total), expected, rtol=1e-6)
    assert total.component("affine").learning_rate == 0.25
    assert total.nodes == first.nodes


def test_statistics_are_those_of_all_frames() -> None:
    """Averages, root mean squares and variances are those of both sets of rows together."""
    (first, rows), (second, other_rows) = network(1, 50), network(3, 10)
    together = np.concatenate([rows, other_rows])

    total = weighted_sum([first, second], [1.0, 1.0])

    relu, norm = total.component("relu"), total.component("norm")
    assert (relu.count, norm.count, relu.num_dims_processed) == (60.0, 60.0, 8.0)
    np.testing.assert_allclose(relu.value_avg, together.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(relu.oderiv_rms, np.sqrt((together**2).mean(axis=0)), rtol=1e-5)
    np.testing.assert_allclose(norm.stats_mean, together.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.stats_var, together.var(axis=0), rtol=1e-4)


def test_statistics_may_be_missing() -> None:
    """A network without statistics adds none to the sum."""
    nnet, _ = network(1, 50)
    bare = nnet.with_components({"relu": RectifiedLinearComponent(dim=4)})

    total = weighted_sum([bare, nnet], [1.0, 1.0])

    assert total.component("relu") == nnet.component("relu")


def test_scale_by_nothing() -> None:
    """Scaling by 0 leaves no parameters and no statistics."""
    none = scale(network(2, 8)[0], 0.0)

    assert not vectorize(none).any()
    assert none.component("relu").count == 0.0
    assert not none.component("relu").value_avg.any()


@pytest.mark.filterwarnings("error")
def test_infinite_averages() -> None:
    """An infinite average, as a damaged file may have, counts for nothing without frames."""
    nnet, _ = network(0, 3)
    endless = np.full(4, np.inf, np.float32)
    none = nnet.component("relu").replace(value_avg=endless, count=0.0)
    odd = nnet.component("norm").replace(stats_mean=endless)
    damaged = nnet.with_components({"relu": none, "norm": odd})

    found = average([nnet, damaged])

    relu = found.component("relu")
    np.testing.assert_allclose(relu.value_avg, nnet.component("relu").value_avg, rtol=1e-6)
    assert np.isinf(found.component("norm").stats_mean).all()


def test_average() -> None:
    """Weights are divided by their sum; without weights, all networks count equally."""
    (first, _), (second, _) = network(1, 5), network(2, 5)

    assert average([first, second], [1, 3]) == weighted_sum([first, second], [0.25, 0.75])
    assert average([first, second]) == weighted_sum([first, second], [0.5, 0.5])


def test_convert_repeated_to_block() -> None:
    """Each block gets the repeated parameters, and training settings stay."""
    nnet = parse_config(
        """
        input-node name=input dim=6
        component name=r type=NaturalGradientRepeatedAffineComponent input-dim=6 output-dim=4 \
        num-repeats=2 learning-rate=0.5
        component-node name=r component=r input=input
        output-node name=output input=r
        """
    )

    block, repeated = convert_repeated_to_block(nnet).component("r"), nnet.component("r")

    assert block.type == "BlockAffineComponent"
    assert block.num_blocks == 2
    assert block.learning_rate == 0.5
    assert (block.linear_params == np.concatenate([repeated.linear_params] * 2)).all()
    assert (block.bias_params == np.concatenate([repeated.bias_params] * 2)).all()
