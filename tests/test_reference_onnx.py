"""The reference cases in ONNX Runtime: outputs are Kaldi's."""

from __future__ import annotations

import numpy as np
import onnxruntime
from nnet3_runtime_onnx import OnnxComputer, to_onnx
from reference_cases import (
    ReferenceCase,
    assert_close,
    network,
    parametrize_cases,
)
from reference_programs import Compile, optimized, parametrize_programs

TOLERANCE = 1e-4


@parametrize_programs
@parametrize_cases()
def test_outputs(case: ReferenceCase, compile_program: Compile) -> None:
    """Outputs agree within 1e-4."""
    nnet = network(case)
    computer = OnnxComputer(nnet, compile_program(nnet, case.request))

    outputs = computer.forward(case.node_arrays("input"))

    assert_close(outputs, case.node_arrays("output"), TOLERANCE)


@parametrize_cases()
def test_any_number_of_sequences(case: ReferenceCase) -> None:
    """With a leading axis of any size, each of its elements is computed as if alone."""
    nnet = network(case)
    computation = optimized(nnet, case.request)
    model = to_onnx(nnet, computation, sequences="sequences")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    inputs = case.node_arrays("input")

    found = session.run(names, {name: np.stack([rows] * 3) for name, rows in inputs.items()})

    for number in range(3):
        outputs = {name: rows[number] for name, rows in zip(names, found, strict=True)}
        assert_close(outputs, case.node_arrays("output"), TOLERANCE)
