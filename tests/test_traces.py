"""Traces of random networks: a trace reads only values that were written, and changes nothing."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner
from example_generator import example_of_seed, random_arrays
from nnet3 import CachingCompiler
from nnet3_descriptors import write_nnet
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, Tracer
from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_tools.training.train import nnet3_train
from nnet3_training import ExampleInput, ExampleOutput, TrainingExample, write_examples
from small_networks import network, stacked
from small_thresholds import thresholds

COUNT = 30

TRAINABLE = stacked(
    3, "affine NaturalGradientAffine input-dim=3 output-dim=2", objective="quadratic"
)


def poisoned(self: Recorder, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory of a program, full of NaN until something is written."""
    return np.full(shape, np.nan, dtype)


@pytest.mark.parametrize("seed", range(COUNT), ids=lambda seed: f"seed{seed}")
def test_traces_of_random_networks(seed: int) -> None:
    """With finite results, a trace finds no fault in memory full of NaN, and results agree."""
    example = example_of_seed(seed)
    nnet, request = example.nnet, example.request
    computation = CachingCompiler(nnet).compile(request)
    inputs = random_arrays(nnet, request.inputs, seed)
    derivatives = random_arrays(
        nnet, [each for each in request.outputs if each.has_deriv], seed + 1
    )
    tracer = Tracer()
    results = []
    for trace in (None, tracer):
        with thresholds(seed), mock.patch.object(Recorder, "empty", poisoned):
            device = DeviceNnet(nnet, trainable=request.need_model_derivative, threads=1 + seed % 2)
            computer = NnetComputer(device, computation, trace=trace)
        values = dict(computer.forward(inputs))
        if request.needs_derivatives:
            values |= {f"{name}'": each for name, each in computer.backward(derivatives).items()}
        results.append(values)

    traced = tracer.trace()

    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])
    if all(np.isfinite(values).all() for values in results[0].values()):
        assert traced.fault is None, str(traced.fault)
    assert [each.text for _, each in traced.commands if not each.node] == []


def test_training_with_a_profile(tmp_path: Path) -> None:
    """nnet3-train --profile prints the time of both passes."""
    write_nnet(network(TRAINABLE), tmp_path / "0.raw")
    inputs = ExampleInput.from_sequences("input", [np.ones((5, 3), np.float32)])
    targets = ExampleOutput.from_targets("output", [np.ones((5, 2), np.float32)])
    write_examples([TrainingExample(key="e", inputs=[inputs], outputs=[targets])], tmp_path / "egs")
    arguments = [f"{tmp_path}/0.raw", f"ark:{tmp_path}/egs", f"{tmp_path}/trained.raw"]

    result = CliRunner().invoke(nnet3_train, [f"--profile={tmp_path}/trace.json", *arguments])

    assert result.exit_code == 0, result.stderr
    assert "affine.backprop" in result.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"Propagate", "Backprop"} <= {each.get("cat") for each in events}
