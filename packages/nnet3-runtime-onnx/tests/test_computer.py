"""OnnxComputer: its inputs, and the order of segments."""

from __future__ import annotations

import numpy as np
import pytest
from exported_programs import request
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_runtime_onnx import OnnxComputer
from small_networks import RECURRENT, SPLICED, network


def formula(rows: np.ndarray) -> np.ndarray:
    """The output of the network RECURRENT, computed frame by frame."""
    affine = network(RECURRENT).component("affine")
    state, outputs = np.zeros(3), []
    for row in rows:
        x = np.concatenate([row, state])
        state = np.tanh(affine.linear_params @ x + affine.bias_params)
        outputs.append(state)
    return np.stack(outputs)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    """Frames of an utterance."""
    return np.random.default_rng(0).standard_normal((24, 4), dtype=np.float32)


def test_a_recurrence(rows: np.ndarray) -> None:
    """Outputs are those of the formula, frame by frame."""
    nnet = network(RECURRENT)
    computer = OnnxComputer(nnet, compile_computation(nnet, request(24, left=0)))

    np.testing.assert_allclose(
        computer.forward({"input": rows})["output"], formula(rows), atol=1e-5
    )


def test_a_loop(rows: np.ndarray) -> None:
    """Chunks continue one another; after a reset, the first one follows."""
    nnet = network(RECURRENT)
    computer = OnnxComputer(nnet, compile_looped(nnet, looped_requests(nnet, 4)))

    for _ in range(2):
        outputs = [computer.forward({"input": chunk})["output"] for chunk in np.split(rows, 6)]
        computer.reset()

        np.testing.assert_allclose(np.concatenate(outputs), formula(rows), atol=1e-5)


def test_no_loop_begins_again(rows: np.ndarray) -> None:
    """Without a loop, the first segment follows the last one."""
    nnet = network(SPLICED)
    computer = OnnxComputer(nnet, compile_computation(nnet, request(3)))

    first, second = (computer.forward({"input": rows[:4]})["output"] for _ in range(2))

    np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings("error")
def test_a_scale_that_overflows() -> None:
    """A scale that single precision cannot hold is infinite there, without a warning."""
    nnet = network(
        "input-node name=input dim=4\n"
        "component name=c type=BatchNormComponent dim=4 target-rms=1e38\n"
        "component-node name=c component=c input=input\noutput-node name=output input=c\n"
    )
    norm = nnet.component("c").replace(
        count=9.0, stats_mean=np.zeros(4), stats_var=np.zeros(4), test_mode=True
    )
    nnet = nnet.with_components({"c": norm})
    computer = OnnxComputer(nnet, compile_computation(nnet, request(3, left=0)))

    assert np.isinf(computer.forward({"input": np.ones((3, 4))})["output"]).all()


@pytest.mark.filterwarnings("error")
def test_a_target_whose_square_is_no_number() -> None:
    """A norm of 1e-45, whose inverse square single precision cannot hold, is exported."""
    nnet = network(
        "input-node name=input dim=4\n"
        "component name=c type=NormalizeComponent dim=4 target-rms=1e-45\n"
        "component-node name=c component=c input=input\noutput-node name=output input=c\n"
    )
    computer = OnnxComputer(nnet, compile_computation(nnet, request(3, left=0)))

    assert not computer.forward({"input": np.zeros((3, 4))})["output"].any()
