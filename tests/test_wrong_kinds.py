"""Values of wrong types or sizes give a Nnet3Error that says what was expected and found."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nnet3_compiler import CompilationError, compile_computation, compile_looped, looped_requests
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    RequestError,
    format_computation,
    parse_computation,
)
from nnet3_descriptors import Nnet, Nnet3Error, SerializationError, parse_config
from nnet3_descriptors.components import AffineComponent
from nnet3_descriptors.editing import apply_edits, average, scale
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer
from nnet3_tables import TableError, read_table

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
        (
            lambda: scale(NNET, "half"),
            "the weights must be numbers: expected real numbers, found <U4",
        ),
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
    """The error is a Nnet3Error, and its message names what was expected and found."""
    with pytest.raises(Nnet3Error) as caught:
        use()

    assert message in str(caught.value)


def test_integers_of_numpy_are_integers() -> None:
    """The extra context of a looped computation may be one number."""
    requests = looped_requests(NNET, 2, extra_left_context=np.int64(1))

    assert requests == looped_requests(NNET, 2, extra_left_context=1)
    with pytest.raises(CompilationError, match="must not be negative"):
        looped_requests(NNET, 2, extra_right_context=np.int64(-1))


AFFINE = "component name=c type=AffineComponent input-dim=2 output-dim=2 learning-rate={}\n"
SPEC = "input-node name=input dim=2\noutput-node name=output input={}\n"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda: parse_config(AFFINE.format("1e300")),
            "'learning-rate' must be a number of single",
        ),
        (lambda: parse_config(AFFINE.format("-1e39")), "must be a number of single precision, got"),
        (
            lambda: parse_config(SPEC.format("Scale(1e300, input)")),
            "the scale of Scale() must be finite in single precision (got 1e+300)",
        ),
        (
            lambda: parse_config(SPEC.format("Sum(input, Const(-1e39, 2))")),
            "the value of Const() must be finite in single precision (got -1e+39)",
        ),
        (
            lambda: apply_edits(NNET, "set-learning-rate learning-rate=1e300"),
            "'learning-rate' must be a number of single precision, got 1e300",
        ),
        (
            lambda: AffineComponent(
                linear_params=np.eye(2), bias_params=np.zeros(2), learning_rate=-1e300
            ),
            "'learning_rate' must be >= 0, got -inf in single precision",
        ),
        (
            lambda: parse_computation(
                format_computation(COMPUTATION, NNET).replace("m2 += m1", "m2 += 1e300 * m1"), NNET
            ),
            "alpha must be a finite number of float32 (got 1e+300)",
        ),
    ],
)
def test_large_numbers_are_not_called_infinite(read: Callable[[], object], message: str) -> None:
    """Messages quote texts, and say so if they round a number."""
    with pytest.raises(Nnet3Error) as caught:
        read()

    assert message in str(caught.value)


def test_contents_take_no_lines_of_their_own() -> None:
    """Names in files, which can contain anything, cannot add lines to a message."""
    forged = "field\nnnet3-copy: all is well"
    data = NNET.to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    content = json.loads(header["__metadata__"]["nnet3"])
    content["content"][forged] = 1
    header["__metadata__"]["nnet3"] = json.dumps(content)
    text = json.dumps(header).encode()

    with pytest.raises(SerializationError) as caught:
        Nnet.from_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    with pytest.raises(RequestError, match="expected the name of a node, found 'a"):
        IoSpecification.from_range("a\nb", 0, 2)

    assert "unknown field 'field\\nnnet3-copy: all is well'" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_null_characters_in_script_files(tmp_path: Path) -> None:
    """A null character in a script file gives an error that names the line."""
    script = tmp_path / "feats.scp"
    script.write_bytes(b"key feats\0.ark:4\n")

    with pytest.raises(TableError, match=r"feats.scp, line 1.*no name of a file has a null char"):
        list(read_table(f"scp:{script}"))
