"""Values of another kind than asked for end with a Nnet3Error that says what was found."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nnet3_compiler import CompilationError, compile_computation, compile_looped, looped_requests
from nnet3_descriptors import Nnet3Error, parse_config
from nnet3_descriptors.editing import average, scale
from nnet3_graph import ComputationRequest, IoSpecification
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer
from nnet3_tables import read_table

NNET = parse_config("input-node name=input dim=2\noutput-node name=output input=input\n")
OUTPUT = IoSpecification.from_range("output", 0, 2)
REQUEST = ComputationRequest(inputs=[IoSpecification.from_range("input", 0, 2)], outputs=[OUTPUT])
COMPUTATION = compile_computation(NNET, REQUEST)
ARRAY = np.zeros((2, 2), np.float32)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: NNET.with_state_dict(ARRAY), "expected a mapping from names to arrays, found nda"),
        (lambda: NNET.with_state_dict({1: ARRAY}), "there is no array '1'"),
        (lambda: scale(NNET, "half"), "the weights must be numbers: could not convert string"),
        (lambda: average(NNET), "expected a sequence of networks, found Nnet"),
        (lambda: average([NNET], [None, {}]), "the weights must be numbers: "),
        (
            lambda: ComputationRequest(inputs=3, outputs=[OUTPUT]),
            "expected a sequence of IoSpecification, found int",
        ),
        (
            lambda: looped_requests(NNET, 2, extra_left_context=None),
            "the extra context must be two integers (got NoneType and int)",
        ),
        (
            lambda: compile_looped(NNET, None),
            "a looped computation needs three requests (got NoneType)",
        ),
        (
            lambda: NnetComputer(NNET, COMPUTATION).forward(None),
            "expected a mapping from nodes to arrays as input, found NoneType",
        ),
        (
            lambda: ReferenceComputer(NNET, COMPUTATION).forward(ARRAY),
            "expected a mapping from nodes to arrays as input, found ndarray",
        ),
        (
            lambda: OnnxComputer(NNET, COMPUTATION).forward([ARRAY]),
            "expected a mapping from nodes to arrays as input, found list",
        ),
        (
            lambda: list(read_table(Path("feats.ark"))),
            f"expected text such as 'ark:FILE' for a table, found {type(Path()).__name__}",
        ),
    ],
)
def test_wrong_kinds(use: Callable[[], object], message: str) -> None:
    """The class is Nnet3Error, and the message names what was expected and found."""
    with pytest.raises(Nnet3Error) as caught:
        use()

    assert message in str(caught.value)


def test_integers_of_numpy_are_integers() -> None:
    """The extra context of a looped computation may be one."""
    requests = looped_requests(NNET, 2, extra_left_context=np.int64(1))

    assert requests == looped_requests(NNET, 2, extra_left_context=1)
    with pytest.raises(CompilationError, match="must not be negative"):
        looped_requests(NNET, 2, extra_right_context=np.int64(-1))
