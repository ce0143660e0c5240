"""OnnxComputer: its inputs, and the order of segments."""

from collections.abc import Callable

import numpy as np
import pytest
from exported_programs import request
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer
from small_networks import RECURRENT, SPLICED, network, stacked

CALLS: dict[str, tuple[str, Callable[[Nnet], NnetComputation], int]] = {
    "a recurrence": (RECURRENT, lambda nnet: compile_computation(nnet, request(24, left=0)), 1),
    "a loop": (RECURRENT, lambda nnet: compile_looped(nnet, looped_requests(nnet, 4)), 6),
    "no loop, which begins again": (
        SPLICED,
        lambda nnet: compile_computation(nnet, request(3)),
        6,
    ),
}
"""Networks, their computations, and the number of calls for 24 rows."""


@pytest.mark.parametrize(("config", "compiled", "calls"), CALLS.values(), ids=CALLS)
def test_calls_in_turn(
    config: str, compiled: Callable[[Nnet], NnetComputation], calls: int
) -> None:
    """Outputs are those of the definition, call by call, also after a reset."""
    nnet = network(config)
    computers = [kind(nnet, compiled(nnet)) for kind in (OnnxComputer, ReferenceComputer)]
    rows = np.random.default_rng(0).standard_normal((24, 4), dtype=np.float32)

    for _ in range(2):
        for chunk in np.split(rows, calls):
            found, expected = (each.forward({"input": chunk})["output"] for each in computers)
            np.testing.assert_allclose(found, expected, atol=1e-5)
        for each in computers:
            each.reset()


@pytest.mark.filterwarnings("error")
def test_a_scale_that_overflows() -> None:
    """A scale that single precision cannot hold is infinite there, without a warning."""
    nnet = network(stacked(4, "c BatchNorm dim=4 target-rms=1e38"))
    norm = nnet.component("c").replace(
        count=9.0, stats_mean=np.zeros(4), stats_var=np.zeros(4), test_mode=True
    )
    nnet = nnet.with_components({"c": norm})
    computer = OnnxComputer(nnet, compile_computation(nnet, request(3, left=0)))

    assert np.isinf(computer.forward({"input": np.ones((3, 4))})["output"]).all()


@pytest.mark.filterwarnings("error")
def test_a_target_whose_square_is_no_number() -> None:
    """A norm of 1e-45, whose inverse square single precision cannot hold, is exported."""
    nnet = network(stacked(4, "c Normalize dim=4 target-rms=1e-45"))
    computer = OnnxComputer(nnet, compile_computation(nnet, request(3, left=0)))

    assert not computer.forward({"input": np.zeros((3, 4))})["output"].any()
