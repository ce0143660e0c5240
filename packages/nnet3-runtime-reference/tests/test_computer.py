"""Whole computations: forward and backward, segments and loops, statistics, masks, errors."""

import numpy as np
import pytest
from nnet3_compiler import compile_computation, compile_looped
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_computation import commands as c
from nnet3_descriptors import Nnet, vectorize
from nnet3_runtime_reference import Draws, GivenMasks, ReferenceComputer, RunError
from nnet3_runtime_reference.commands import execute
from nnet3_runtime_reference.state import State
from small_networks import computation, identity, network, request_for, stacked

SPLICED = """
input-node name=input dim=2
component name=affine type=AffineComponent input-dim=4 output-dim=3 bias-stddev=1
component name=tanh type=TanhComponent dim=3
component-node name=affine component=affine input=Append(Offset(input, -1), input)
component-node name=tanh component=tanh input=affine
output-node name=output input=Sum(tanh, Scale(0.5, affine))
"""

RECURRENT = stacked(
    2,
    "affine Affine input-dim=5 output-dim=3 bias-stddev=1",
    "tanh Tanh dim=3",
    splice="Append(input, IfDefined(Offset(tanh, -1)))",
)


def request(
    inputs: range, outputs: range, *, sequences: int = 2, training: bool = True
) -> ComputationRequest:
    """A request for some sequences; for training, with all derivatives and statistics."""
    return request_for(
        inputs,
        outputs,
        sequences,
        derivs=["input", "output"] if training else [],
        need_model_derivative=training,
        store_component_stats=training,
    )


def spliced_computer(*, training: bool = True, **options: object) -> ReferenceComputer:
    """A computer of SPLICED with five input frames and four output frames."""
    nnet = network(SPLICED)
    wanted = request(range(-1, 4), range(4), training=training)
    return ReferenceComputer(nnet, compile_computation(nnet, wanted), **options)


def test_forward_and_backward() -> None:
    """Outputs, derivatives and gradients are those of the formulas; further runs are equal."""
    computer, nnet = spliced_computer(), network(SPLICED)
    state = nnet.state_dict()
    w, b = (state[f"affine.{name}_params"].astype(np.float64) for name in ("linear", "bias"))
    rng = np.random.default_rng(1)
    for _ in range(2):
        x, dy = rng.standard_normal((2, 5, 2)), rng.standard_normal((2, 4, 3))
        spliced = np.concatenate([x[:, :-1], x[:, 1:]], axis=2)
        a = spliced @ w.T + b
        da = dy * (1 - np.tanh(a) ** 2) + 0.5 * dy
        ds, dx = da @ w, np.zeros_like(x)
        dx[:, :-1] += ds[..., :2]
        dx[:, 1:] += ds[..., 2:]

        outputs = computer.forward({"input": x.reshape(10, 2)})
        derivatives = computer.backward({"output": dy.reshape(8, 3)})

        expected = (np.tanh(a) + 0.5 * a).reshape(8, 3)
        np.testing.assert_allclose(outputs["output"], expected, rtol=1e-12)
        np.testing.assert_allclose(derivatives["input"], dx.reshape(10, 2), rtol=1e-12)
        gradient = np.concatenate([np.einsum("nti,ntj", da, spliced).ravel(), da.sum(axis=(0, 1))])
        np.testing.assert_allclose(vectorize(computer.gradient), gradient, rtol=1e-6)
    assert computer.gradient.component("affine").is_gradient
    np.testing.assert_array_equal(vectorize(computer.nnet), vectorize(nnet))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype(dtype: type[np.floating]) -> None:
    """Results have the dtype of the computer, for inputs of any type."""
    computer = spliced_computer(dtype=dtype)

    assert computer.forward({"input": np.ones((10, 2), dtype=int)})["output"].dtype == dtype
    assert computer.backward({"output": np.ones((8, 3))})["input"].dtype == dtype


class Always(Draws):
    """Always decides yes."""

    def chance(self, component: str, probability: float) -> bool:
        """Returns True."""
        return True


def test_statistics_of_several_runs() -> None:
    """Statistics are averages over the rows of all runs, continued from those of the network."""
    computer = spliced_computer(draws=Always())
    rng, activations = np.random.default_rng(2), []
    for _ in range(3):
        computer.forward({"input": rng.standard_normal((10, 2))})
        computer.backward({"output": np.full((8, 3), 2.0)})
        activations.append(computer.nnet.component("tanh"))

    assert [component.count for component in activations] == [8, 16, 24]
    assert activations[-1].oderiv_count == 24
    np.testing.assert_allclose(activations[-1].oderiv_rms, 2.0, rtol=1e-6)
    again = ReferenceComputer(
        computer.nnet,
        compile_computation(computer.nnet, request(range(-1, 4), range(4))),
        draws=Always(),
    )
    again.forward({"input": np.zeros((10, 2))})
    assert again.nnet.component("tanh").count == 32
    weighted = 24 * activations[-1].value_avg + 8 * np.tanh(
        computer.nnet.component("affine").bias_params
    )
    np.testing.assert_allclose(again.nnet.component("tanh").value_avg, weighted / 32, rtol=1e-5)


@pytest.mark.parametrize(
    "kind", ["{0} {1}", "Composite num-components=1 component1='type={0}Component {1}'"]
)
def test_statistics_are_not_rounded_between_runs(kind: str) -> None:
    """A unit that is active in 19 of 20 rows is not above 0.95, however they were counted."""
    relu = kind.format("RectifiedLinear", "dim=1 self-repair-scale=0.1")
    nnet = network(stacked(1, f"relu {relu}"))
    program = compile_computation(nnet, request(range(1), range(1), sequences=1))
    computer = ReferenceComputer(nnet, program, draws=Always())
    derivatives = []
    for row in range(20):  # averages in single precision would end at 0.95000005
        computer.forward({"input": [[-1.0 if row == 18 else 1.0]]})
        derivatives.append(computer.backward({"output": [[1.0]]})["input"].item())

    assert all(derivative < 1.0 for derivative in derivatives[:18])
    assert derivatives[19] == 1.0


def looped() -> tuple[Nnet, NnetComputation]:
    """A loop over chunks of three frames, for two sequences."""
    nnet = network(RECURRENT)
    chunks = [range(start, start + 3) for start in (0, 3, 6)]
    return nnet, compile_looped(nnet, [request(each, each, training=False) for each in chunks])


def test_loop() -> None:
    """Each chunk continues the one before, until a reset."""
    nnet, program = looped()
    state = nnet.state_dict()
    w, b = (state[f"affine.{name}_params"].astype(np.float64) for name in ("linear", "bias"))
    computer = ReferenceComputer(nnet, program)
    rng = np.random.default_rng(3)
    for _ in range(2):
        h = np.zeros((2, 3))
        for chunk in range(7):
            x = rng.standard_normal((2, 3, 2))
            found = computer.forward({"input": x.reshape(6, 2)})["output"].reshape(2, 3, 3)
            for frame in range(3):
                h = np.tanh(np.concatenate([x[:, frame], h], axis=1) @ w.T + b)
                np.testing.assert_allclose(found[:, frame], h, rtol=1e-12, err_msg=f"{chunk}")
        computer.reset()


def segments() -> NnetComputation:
    """Three segments, the second without inputs and outputs, and a backward part."""
    commands = [
        c.AcceptInput(matrix=1, node=0),
        c.AllocMatrixZeroed(matrix=2),
        c.MatrixAdd(output=2, input=1),
        c.ProvideOutput(matrix=2, node=1),
        c.NoOperationMarker(),
        c.MatrixAdd(output=2, input=1, alpha=10.0),
        c.NoOperationMarker(),
        c.AcceptInput(matrix=1, node=0),
        c.MatrixAdd(output=2, input=1),
        c.ProvideOutput(matrix=2, node=1),
        c.NoOperationMarker(),
        c.AcceptInput(matrix=3, node=1),
        c.MatrixCopy(output=2, input=3, alpha=3.0),
        c.ProvideOutput(matrix=2, node=0),
    ]
    return computation([(1, 1)] * 3, commands)


def test_segments() -> None:
    """Segments run in turn, then from the first again; a silent one runs with the one before."""
    computer = ReferenceComputer(identity(1), segments())
    for _ in range(2):
        assert computer.forward({"input": [[1.0]]})["output"] == 1.0
        with pytest.raises(RunError, match=r"^backward\(\) needs a forward\(\) before it, one"):
            computer.backward({"output": [[1.0]]})
        assert computer.forward({"input": [[2.0]]})["output"] == 13.0
        assert computer.backward({"output": [[5.0]]})["input"] == 15.0
    computer.forward({"input": [[1.0]]})
    computer.reset()
    assert computer.forward({"input": [[4.0]]})["output"] == 4.0


@pytest.mark.parametrize(
    ("position", "is_lost"), [(2, False), (5, False), (8, True)], ids=["first", "silent", "second"]
)
def test_interrupted_segments(
    position: int, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupted segment, unless it is the first, only reset() allows further ones."""
    computer = ReferenceComputer(identity(1), segments())
    positions = iter(range(9))

    def interrupt(command: c.Command, state: State) -> None:
        if next(positions) == position:
            raise KeyboardInterrupt
        execute(command, state)

    with monkeypatch.context() as patch:
        patch.setattr("nnet3_runtime_reference.computer.execute", interrupt)
        if is_lost:
            computer.forward({"input": [[1.0]]})
        with pytest.raises(KeyboardInterrupt):
            computer.forward({"input": [[2.0]]})

    if is_lost:
        with pytest.raises(RunError, match=r"was interrupted.*reset\(\) begins with the first"):
            computer.forward({"input": [[2.0]]})
        computer.reset()
    assert computer.forward({"input": [[1.0]]})["output"] == 1.0
    assert computer.forward({"input": [[2.0]]})["output"] == 13.0


def test_refused_inputs_have_no_effect() -> None:
    """After inputs that are refused, the computer is where it was."""
    computer, ones = spliced_computer(), {"input": np.ones((10, 2))}

    with pytest.raises(RunError, match="input 'input' is missing"):
        computer.forward({})
    assert computer.forward(ones)["output"].shape == (8, 3)
    with pytest.raises(RunError, match="there is no input 'in'"):
        computer.forward({"in": 0})
    assert computer.backward({"output": np.ones((8, 3))})["input"].shape == (10, 2)


def dropout_computer(draws: Draws | None) -> ReferenceComputer:
    """A computer of dropout for ten frames of one sequence."""
    nnet = network(stacked(2, "drop Dropout dim=2 dropout-proportion=0.5"))
    program = compile_computation(nnet, request_for(range(10), range(10)))
    return ReferenceComputer(nnet, program, draws=draws)


def test_drawn_masks() -> None:
    """Masks depend only on the seed, and differ from run to run."""
    ones = {"input": np.ones((10, 2))}
    first, same, other = (dropout_computer(Draws(seed)) for seed in (1, 1, 2))

    masks = [first.forward(ones)["output"] for _ in range(2)]

    assert set(np.unique(masks)) == {0.0, 1.0}
    assert not np.array_equal(*masks)
    np.testing.assert_array_equal(same.forward(ones)["output"], masks[0])
    assert not np.array_equal(other.forward(ones)["output"], masks[0])


def test_given_masks() -> None:
    """Given masks are used in order."""
    masks = [np.eye(10, 2), 3 * np.ones((10, 2))]
    computer = dropout_computer(GivenMasks({"drop": masks}))
    twos = {"input": np.full((10, 2), 2.0)}

    np.testing.assert_array_equal(computer.forward(twos)["output"], 2 * masks[0])
    np.testing.assert_array_equal(computer.forward(twos)["output"], 2 * masks[1])
    others = dropout_computer(GivenMasks({"another": []}))
    assert others.forward(twos)["output"].shape == (10, 2)


@pytest.mark.parametrize(
    "component",
    [
        "Normalize dim=12 add-log-stddev=true",
        "BatchNorm dim=12",
        "Pnorm input-dim=12 output-dim=4",
        "RestrictedAttention key-dim=3 value-dim=3 num-left-inputs=1 num-right-inputs=1",
    ],
)
def test_squares_beyond_single_precision(component: str) -> None:
    """In single precision squares do not overflow: results are those of double precision."""
    nnet = network(stacked(12, f"c {component}"))
    frames = request_for(range(8), range(1, 7), derivs=["input", "output"])
    computation = compile_computation(nnet, frames)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((8, 12)) * 1e30).astype(np.float32)
    dy = rng.standard_normal((6, nnet.node_dim("output"))).astype(np.float32)

    found = []
    for dtype in (np.float32, np.float64):
        computer = ReferenceComputer(nnet, computation, dtype=dtype)
        outputs = computer.forward({"input": x})["output"]
        found.append((outputs, computer.backward({"output": dy})["input"]))

    for single, double in zip(*found, strict=True):
        np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-5 * np.abs(double).max())
