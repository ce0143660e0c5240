"""Row-by-row formulas: values by hand, derivatives by finite differences, statistics, repair."""

import math

import attrs
import numpy as np
import pytest
from formula_calls import SameDraws, Setting, assert_gradient, assert_input_derivative, simple
from nnet3_runtime_reference.formulas.nonlinear import sigmoid

ROWS = 6

DIFFERENTIABLE = {
    "affine": "AffineComponent input-dim=4 output-dim=3 bias-stddev=1",
    "natural gradient affine": "NaturalGradientAffineComponent input-dim=4 output-dim=3",
    "fixed affine": "FixedAffineComponent input-dim=4 output-dim=3",
    "linear": "LinearComponent input-dim=4 output-dim=3",
    "blocks": "BlockAffineComponent input-dim=6 output-dim=4 num-blocks=2",
    "repeated": "RepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2 bias-stddev=1",
    "natural gradient repeated": (
        "NaturalGradientRepeatedAffineComponent input-dim=6 output-dim=9 num-repeats=3"
    ),
    "scale": "PerElementScaleComponent dim=4 param-stddev=1",
    "natural gradient scale": "NaturalGradientPerElementScaleComponent dim=4 param-stddev=1",
    "offset": "PerElementOffsetComponent dim=6 block-dim=3 param-stddev=1",
    "scale and offset": "ScaleAndOffsetComponent dim=6 block-dim=3",
    "fixed scale": "FixedScaleComponent dim=4",
    "fixed bias": "FixedBiasComponent dim=4",
    "constant function": "ConstantFunctionComponent input-dim=4 output-dim=3 output-stddev=1",
    "fixed function": "ConstantFunctionComponent input-dim=4 output-dim=3 is-updatable=false",
    "identity": "NoOpComponent dim=4",
    "product": "ElementwiseProductComponent input-dim=6 output-dim=2",
    "p-norm": "PnormComponent input-dim=6 output-dim=2",
    "sum of groups": "SumGroupComponent sizes=1,3,2",
    "sum of blocks": "SumBlockComponent input-dim=6 output-dim=2 scale=0.5",
    "permutation": "PermuteComponent column-map=2,0,3,1",
    "sigmoid": "SigmoidComponent dim=4",
    "tanh": "TanhComponent dim=4",
    "rectified linear": "RectifiedLinearComponent dim=4",
    "softmax": "SoftmaxComponent dim=4",
    "log-softmax": "LogSoftmaxComponent dim=4",
    "normalize": "NormalizeComponent input-dim=4 target-rms=0.7",
    "normalize blocks": "NormalizeComponent input-dim=6 block-dim=3 add-log-stddev=true",
    "batch norm": "BatchNormComponent dim=4 target-rms=0.8 epsilon=0.1",
    "batch norm in blocks": "BatchNormComponent dim=6 block-dim=3",
    "trained batch norm": "BatchNormComponent dim=4 test-mode=true",
    "dropout": "DropoutComponent dim=4 dropout-proportion=0.4",
    "dropout of rows": "DropoutComponent dim=4 dropout-proportion=0.4 dropout-per-frame=true",
    "trained dropout": "DropoutComponent dim=4 dropout-proportion=0.4 test-mode=true",
    "clipping": "ClipGradientComponent dim=4 clipping-threshold=1000",
    "clipping of rows": (
        "ClipGradientComponent dim=4 clipping-threshold=1000 norm-based-clipping=true"
    ),
    "truncation": "BackpropTruncationComponent dim=4 scale=0.7",
}


@pytest.mark.parametrize("options", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE.keys())
def test_derivatives(options: str) -> None:
    """Derivatives of input and parameters are central differences of the formula."""
    rng = np.random.default_rng(0)
    setting = simple(f"type={options}", ROWS)
    x, dy = setting.random_x(rng), setting.random_dy(rng)

    assert_input_derivative(setting, x, dy, rng)
    assert_gradient(setting, x, dy, rng)


def forward(options: str, x: object, **fields: object) -> np.ndarray:
    """The output of a component with some fields replaced."""
    rows = np.array(x, dtype=np.float64)
    return with_fields(simple(f"type={options}", len(rows)), **fields).propagated(rows).y


def with_fields(setting: Setting, **fields: object) -> Setting:
    """A setting with other fields of its component."""
    return attrs.evolve(setting, component=setting.component.replace(**fields))


X = np.array([[3.0, -4.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("NoOpComponent dim=4", X),
        ("SigmoidComponent dim=4", 1 / (1 + np.exp(-X))),
        ("TanhComponent dim=4", np.sinh(X) / np.cosh(X)),
        ("RectifiedLinearComponent dim=4", [[3, 0, 1, 0]]),
        ("SoftmaxComponent dim=4", np.exp(X) / np.exp(X).sum()),
        ("LogSoftmaxComponent dim=4", np.log(np.exp(X) / np.exp(X).sum())),
        ("PnormComponent input-dim=4 output-dim=2", [[5, 1]]),
        ("SumGroupComponent sizes=1,3", [[3, -3]]),
        ("SumBlockComponent input-dim=4 output-dim=2 scale=0.5", [[2, -2]]),
        ("ElementwiseProductComponent input-dim=4 output-dim=2", [[3, 0]]),
        ("PermuteComponent column-map=2,0,3,1", [[1, 3, 0, -4]]),
        ("NormalizeComponent input-dim=4 target-rms=2", 2 * X / np.sqrt(26 / 4)),
        (
            "NormalizeComponent input-dim=4 block-dim=2 add-log-stddev=true",
            [[3 / 12.5**0.5, -4 / 12.5**0.5, np.log(12.5**0.5), 2**0.5, 0, np.log(0.5**0.5)]],
        ),
        ("ClipGradientComponent dim=4", X),
        ("BackpropTruncationComponent dim=4 scale=0.5", X / 2),
        ("DropoutComponent dim=4 dropout-proportion=0.25 test-mode=true", 0.75 * X),
        ("ScaleAndOffsetComponent dim=4", X),
    ],
)
def test_values(options: str, expected: object) -> None:
    """Outputs for one row are those computed by hand."""
    np.testing.assert_allclose(forward(options, X), expected, rtol=1e-7, atol=1e-12)


def test_values_with_parameters() -> None:
    """Matrices and vectors have the places that the formulas give them."""
    w = np.arange(8.0).reshape(2, 4)

    def check(options: str, expected: object, **fields: object) -> None:
        np.testing.assert_allclose(forward(options, X, **fields), expected, rtol=1e-7)

    affine = "AffineComponent input-dim=4 output-dim=2"
    check(affine, X @ w.T + [1, 2], linear_params=w, bias_params=[1, 2])
    check("LinearComponent input-dim=4 output-dim=2", X @ w.T, params=w)
    blocks = "BlockAffineComponent input-dim=4 output-dim=2 num-blocks=2"
    check(blocks, [[-2, 2 + 9]], linear_params=[[2, 2], [2, 3]], bias_params=[0, 9])
    repeats = "RepeatedAffineComponent input-dim=4 output-dim=2 num-repeats=2"
    check(repeats, [[-5, 3]], linear_params=[[2, 3]], bias_params=[1])
    check("PerElementOffsetComponent dim=4 block-dim=2", X + np.array([1, 2, 1, 2]), offsets=[1, 2])
    check(
        "ScaleAndOffsetComponent dim=4 block-dim=2",
        [[3e-4 + 1, 8 + 2, 1e-4 + 1, 2]],
        scales=[0.0, -2.0],
        offsets=[1, 2],
    )
    check("ConstantFunctionComponent input-dim=4 output-dim=2", [[5, 6]], output=[5, 6])


def test_extreme_values() -> None:
    """Large inputs do not overflow; a softmax is at least 1e-20, rows of zeros stay zeros."""
    large = [[1000.0, -1000.0]]

    np.testing.assert_array_equal(forward("SigmoidComponent dim=2", large), [[1, 0]])
    np.testing.assert_array_equal(forward("SoftmaxComponent dim=2", large), [[1, 1e-20]])
    np.testing.assert_array_equal(forward("LogSoftmaxComponent dim=2", large), [[0, -2000]])
    np.testing.assert_array_equal(forward("NormalizeComponent input-dim=2", [[0, 0]]), [[0, 0]])


def test_derivatives_where_there_is_none() -> None:
    """At 0, a p-norm and a rectifier pass no derivative, and a dropout passes all."""
    zeros = np.zeros((ROWS, 4))
    rng = np.random.default_rng(0)
    pnorm, dropout, rectifier = (
        simple(f"type={options}", ROWS)
        for options in (
            "PnormComponent input-dim=4 output-dim=2",
            "DropoutComponent dim=4 dropout-proportion=0.5",
            "RectifiedLinearComponent dim=4",
        )
    )
    dy = rng.standard_normal((ROWS, 4))

    np.testing.assert_array_equal(pnorm.backpropagated(zeros, dy[:, :2]).dx, zeros)
    np.testing.assert_array_equal(dropout.backpropagated(zeros, dy).dx, dy)
    np.testing.assert_array_equal(rectifier.backpropagated(zeros, dy).dx, zeros)


def test_constant_has_no_input() -> None:
    """A constant's gradient is the sum of the output derivatives; it has no input derivative."""
    setting = simple("type=ConstantComponent output-dim=3 output-stddev=1", ROWS)
    setting = attrs.evolve(setting, input_indexes=setting.input_indexes[:0])
    rng = np.random.default_rng(0)
    x, dy = setting.random_x(rng), setting.random_dy(rng)

    found = setting.backpropagated(x, dy)

    np.testing.assert_allclose(found.y, np.tile(setting.component.output, (ROWS, 1)))
    assert found.dx.shape == (0, 3)
    assert_gradient(setting, x, dy, rng)


def mask(options: str, rows: int = 2000) -> np.ndarray:
    """The output of a mask without input, or of a dropout for ones."""
    setting = simple(f"type={options}", rows)
    return setting.propagated(np.ones((rows, setting.component.input_dim))).y


def test_dropout_masks() -> None:
    """Elements or rows are kept unscaled, with probability 1 - p."""
    found = mask("DropoutComponent dim=3 dropout-proportion=0.3")
    rows = mask("DropoutComponent dim=3 dropout-proportion=0.3 dropout-per-frame=true")

    for each in (found, rows):
        assert set(np.unique(each)) == {0.0, 1.0}
        assert abs(each.mean() - 0.7) < 0.05
    assert (rows == rows[:, :1]).all()
    assert not (found == found[:, :1]).all()


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_masks_of_gates(dim: int) -> None:
    """Columns are kept with probability 1 - p; of two or three, the first two are never both 0."""
    found = mask(f"DropoutMaskComponent output-dim={dim} dropout-proportion=0.3")

    assert set(np.unique(found)) == {0.0, 1.0}
    assert np.abs(found.mean(axis=0) - 0.7).max() < 0.05
    if dim > 1:
        assert found[:, :2].any(axis=1).all() == (dim < 4)


def test_other_masks_of_gates() -> None:
    """Continuous masks are uniform around 1; in test mode, or with p = 0, masks are constant."""
    options = "DropoutMaskComponent output-dim=2 dropout-proportion"
    found = mask(f"{options}=0.2 continuous=true")

    assert 0.6 <= found.min() < 0.61 < 1.39 < found.max() <= 1.4
    assert (mask(f"{options}=0.25 test-mode=true") == 0.75).all()
    assert (mask(f"{options}=0.25 test-mode=true continuous=true") == 1.0).all()
    assert (mask(f"{options}=0") == 1.0).all()


# -- statistics and self-repair --------------------------------------------------------------------


def deciding(setting: Setting, decision: bool) -> Setting:
    """The setting with a fixed decision in place of chance."""
    return attrs.evolve(setting, draws=SameDraws(decision=decision))


def statistics(setting: Setting, x: np.ndarray) -> dict[str, object]:
    """The fields that StoreStats changes."""
    return dict(setting.formula.statistics(setting.propagated(x)))


SLOPES = {
    "Sigmoid": lambda x: 1 / (2 + np.exp(x) + np.exp(-x)),
    "Tanh": lambda x: 1 / np.cosh(x) ** 2,
    "RectifiedLinear": lambda x: (x > 0) * 1.0,
}


@pytest.mark.parametrize("kind", SLOPES)
def test_statistics_of_activations(kind: str) -> None:
    """Statistics are averages of values and slopes over the rows of the minibatches that count."""
    setting = simple(f"type={kind}Component dim=3", ROWS)
    rng = np.random.default_rng(0)
    first, second = (setting.random_x(rng) for _ in range(2))
    y = setting.propagated(np.concatenate([first])).y

    one = statistics(deciding(setting, False), first)  # the first minibatch always counts
    after = with_fields(setting, **one)

    assert one["count"] == ROWS
    np.testing.assert_allclose(one["value_avg"], y.mean(axis=0))
    np.testing.assert_allclose(one["deriv_avg"], SLOPES[kind](first).mean(axis=0))
    assert statistics(deciding(after, False), second) == {}
    both = statistics(deciding(after, True), second)
    slopes = np.concatenate([SLOPES[kind](first), SLOPES[kind](second)])
    assert both["count"] == 2 * ROWS
    np.testing.assert_allclose(both["deriv_avg"], slopes.mean(axis=0), rtol=1e-6)


def test_statistics_of_softmax() -> None:
    """A softmax counts every minibatch, a log-softmax none."""
    softmax = deciding(simple("type=SoftmaxComponent dim=3", ROWS), False)
    log = deciding(simple("type=LogSoftmaxComponent dim=3", ROWS), True)
    x = softmax.random_x(np.random.default_rng(0))
    y = softmax.propagated(x).y

    one = statistics(softmax, x)
    two = statistics(with_fields(softmax, **one), x)

    assert (one["count"], two["count"]) == (ROWS, 2 * ROWS)
    np.testing.assert_allclose(two["value_avg"], y.mean(axis=0), rtol=1e-6)
    assert statistics(log, x) == {}


@pytest.mark.parametrize("kind", [*SLOPES, "Softmax", "LogSoftmax"])
def test_statistics_of_derivatives(kind: str) -> None:
    """The statistic is the root mean square of dy over the minibatches that count."""
    setting = simple(f"type={kind}Component dim=3", ROWS)
    rng = np.random.default_rng(0)
    x, first, second = setting.random_x(rng), setting.random_dy(rng), setting.random_dy(rng)

    one = deciding(setting, False).backpropagated(x, first).statistics
    after = with_fields(setting, **one)
    neither = deciding(after, False).backpropagated(x, second).statistics
    both = deciding(after, True).backpropagated(x, second).statistics

    assert one["oderiv_count"] == ROWS
    np.testing.assert_allclose(one["oderiv_rms"], np.sqrt((first**2).mean(axis=0)))
    assert "oderiv_count" not in neither
    square = np.concatenate([first, second]) ** 2
    np.testing.assert_allclose(both["oderiv_rms"], np.sqrt(square.mean(axis=0)), rtol=1e-6)


@pytest.mark.parametrize("blocks", [1, 2])
def test_statistics_of_batch_norm(blocks: int) -> None:
    """Mean and variance are those of all rows and blocks of all minibatches."""
    setting = simple(f"type=BatchNormComponent dim={3 * blocks} block-dim=3", ROWS)
    rng = np.random.default_rng(0)
    first, second = (setting.random_x(rng) + 2 for _ in range(2))

    after = with_fields(setting, **statistics(setting, first))
    found = statistics(after, second)

    rows = np.concatenate([first, second]).reshape(-1, 3)
    assert found["count"] == 2 * ROWS * blocks
    np.testing.assert_allclose(found["stats_mean"], rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found["stats_var"], rows.var(axis=0), rtol=1e-5)
    trained = with_fields(after, **found, test_mode=True)
    y = trained.propagated(first).y.reshape(-1, 3)
    scale = 1 / np.sqrt(rows.var(axis=0) + 0.001)
    np.testing.assert_allclose(
        y, (first.reshape(-1, 3) - rows.mean(axis=0)) * scale, rtol=1e-4, atol=1e-5
    )


def repaired(kind: str, averages: list[float], *, more: str = "") -> tuple[Setting, np.ndarray]:
    """A component with these average slopes, and its input values."""
    dim = len(averages)
    setting = simple(f"type={kind}Component dim={dim} self-repair-scale=0.01 {more}", ROWS)
    fields = {"deriv_avg": averages, "value_avg": np.zeros(dim), "count": 20.0}
    return with_fields(setting, **fields), setting.random_x(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("kind", "averages", "pushes"),
    [
        ("Sigmoid", [0.049, 0.05, 0.2], [1, 0, 0]),
        ("Tanh", [0.199, 0.2, 0.9], [1, 0, 0]),
        ("RectifiedLinear", [0.05, 0.051, 0.95, 0.951], [1, 0, 0, -1]),
    ],
)
def test_self_repair(kind: str, averages: list[float], pushes: list[float]) -> None:
    """Inputs of columns beyond the thresholds are pushed back, with twice the average strength."""
    setting, x = repaired(kind, averages)
    y, dy = setting.propagated(x).y, setting.random_dy(np.random.default_rng(1))
    plain = deciding(setting, False).backpropagated(x, dy)

    found = deciding(setting, True).backpropagated(x, dy)

    back = {"Sigmoid": 1 - 2 * y, "Tanh": -y, "RectifiedLinear": np.ones_like(y)}[kind]
    np.testing.assert_allclose(plain.dx, dy * SLOPES[kind](x), rtol=1e-12)
    np.testing.assert_allclose(found.dx - plain.dx, 0.02 * np.array(pushes) * back, atol=1e-9)
    assert found.statistics["num_dims_self_repaired"] == np.abs(pushes).sum()
    assert found.statistics["num_dims_processed"] == len(averages)
    counted = plain.statistics.get("num_dims_processed")
    assert counted == (None if kind == "RectifiedLinear" else len(averages))


def test_self_repair_of_blocks() -> None:
    """The columns of a rectifier that correspond in each block share a decision."""
    averages = [0.0, 0.0, 0.08, 0.2]
    setting, x = repaired("RectifiedLinear", averages, more="block-dim=2")
    dy = setting.random_dy(np.random.default_rng(1))

    found = deciding(setting, True).backpropagated(x, dy)

    added = found.dx - dy * (x > 0)
    np.testing.assert_allclose(added, 0.02 * np.tile([1, 0, 1, 0], (ROWS, 1)), atol=1e-9)
    assert found.statistics["num_dims_self_repaired"] == 1
    assert found.statistics["num_dims_processed"] == 2


def test_no_self_repair_without_an_update() -> None:
    """BackpropNoModelUpdate gives the plain derivative."""
    setting, x = repaired("Tanh", [0.0, 0.0])
    dy = setting.random_dy(np.random.default_rng(1))

    dx = setting.formula.backward(attrs.evolve(setting.propagated(x), dy=dy))

    np.testing.assert_allclose(dx, dy * SLOPES["Tanh"](x), rtol=1e-12)


# -- truncation ------------------------------------------------------------------------------------


def test_clipped_elements() -> None:
    """Each element is clipped to the threshold's magnitude; 0 passes nothing."""
    rng = np.random.default_rng(0)
    for threshold in (0.5, 0.0):
        setting = simple(f"type=ClipGradientComponent dim=3 clipping-threshold={threshold}", ROWS)
        x, dy = setting.random_x(rng), setting.random_dy(rng)

        found = setting.backpropagated(x, dy)

        np.testing.assert_array_equal(found.dx, np.clip(dy, -threshold, threshold))
        assert found.statistics["num_backpropped"] == (threshold > 0)
        assert found.statistics["count"] == 0


@pytest.mark.parametrize("repairs", [False, True])
def test_clipped_rows(repairs: bool) -> None:
    """Long rows are scaled down; if many were, large inputs are pushed back, with the same norm."""
    rng = np.random.default_rng(0)
    setting = simple(
        "type=ClipGradientComponent dim=3 clipping-threshold=1.5 norm-based-clipping=true "
        "self-repair-clipped-proportion-threshold=0.1 self-repair-target=0.5 "
        "self-repair-scale=0.3",
        ROWS,
    )
    x, dy = setting.random_x(rng), setting.random_dy(rng)
    norm = np.linalg.norm(dy, axis=1, keepdims=True)
    expected = np.where(norm > 1.5, dy * 1.5 / norm, dy)
    num_clipped = int((norm > 1.5).sum())
    assert 1 <= num_clipped < ROWS
    if repairs:
        excess = np.where(np.abs(x) > 0.5, x - 0.5 * np.sign(x), 0)
        before = np.linalg.norm(expected, axis=1).mean()
        push = 2 * 0.3 * num_clipped / ROWS * before / np.linalg.norm(excess, axis=1).mean()
        expected = expected - push * excess
        expected *= before / np.linalg.norm(expected, axis=1).mean()

    found = deciding(setting, repairs).backpropagated(x, dy)

    np.testing.assert_allclose(found.dx, expected, rtol=1e-6)
    assert found.statistics == {
        "count": ROWS,
        "num_clipped": num_clipped,
        "num_backpropped": 1,
        "num_self_repaired": repairs,
    }


def test_truncated_derivatives() -> None:
    """Long rows are scaled down; rows at a boundary above a larger limit are zeroed."""
    rng = np.random.default_rng(0)
    setting = simple(
        "type=BackpropTruncationComponent dim=3 scale=0.5 clipping-threshold=0.7 "
        "zeroing-threshold=0.8 zeroing-interval=2",
        ROWS,
    )
    x, dy = setting.random_x(rng), 2 * setting.random_dy(rng)
    norm = np.linalg.norm(0.5 * dy, axis=1, keepdims=True)
    at_boundary = np.arange(ROWS)[:, None] % 2 == 0
    is_zeroed = at_boundary & (norm > 0.8)
    expected = np.where(is_zeroed, 0, 0.5 * dy * np.minimum(1, 0.7 / norm))
    assert 0 < is_zeroed.sum() < (norm > 0.7).sum()

    found = setting.backpropagated(x, dy)

    np.testing.assert_allclose(found.dx, expected, rtol=1e-6)
    assert found.statistics == {
        "count": ROWS,
        "num_clipped": (norm > 0.7).sum(),
        "num_zeroed": is_zeroed.sum(),
        "count_zeroing_boundaries": at_boundary.sum(),
    }


def test_no_thresholds() -> None:
    """A threshold of 0 means no clipping."""
    setting = simple(
        "type=BackpropTruncationComponent dim=3 clipping-threshold=0 zeroing-threshold=0 "
        "zeroing-interval=1",
        ROWS,
    )
    dy = 1e6 * setting.random_dy(np.random.default_rng(0))

    np.testing.assert_array_equal(setting.backpropagated(np.zeros((ROWS, 3)), dy).dx, dy)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-15)])
def test_sigmoid_of_any_size(dtype: type[np.floating], tolerance: float) -> None:
    """A gate that is nearly closed has all digits, and none overflows."""
    x = np.array([-1e4, -80.0, -35.0, -1.0, 0.0, 1.0, 80.0, 1e4], dtype=dtype)
    wanted = [0.0, *(math.exp(-a) / (1 + math.exp(-a)) for a in (80.0, 35.0, 1.0))]
    wanted += [0.5, 1 / (1 + math.exp(-1.0)), 1.0, 1.0]

    values = sigmoid(x)

    assert values.dtype == dtype
    np.testing.assert_allclose(values, wanted, rtol=tolerance)
