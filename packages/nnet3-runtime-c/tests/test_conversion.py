"""Converted computations: their values, their text, and what is refused."""

import copy
import os
import pickle
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pytest
from c_computer import COMPILER, STRICT, WITH_CBLAS, CComputer
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_c import to_c
from nnet3_runtime_c.calls import real
from nnet3_runtime_c.products import integer_panels, panels
from nnet3_runtime_reference import ReferenceComputer
from small_networks import NAMED_LIKE_A_PART, RECURRENT, network, request_for, stacked

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")

SPLICED = "input-node name=ivector dim=2\noutput-node name=output-side input=affine\n" + stacked(
    4,
    "affine Affine input-dim=10 output-dim=19",
    "relu RectifiedLinear dim=19",
    "softmax LogSoftmax dim=19",
    splice="Append(Offset(input, -1), input, ReplaceIndex(ivector, t, 0))",
)


def spliced() -> tuple[Nnet, NnetComputation]:
    """A network, and its computation of five frames."""
    nnet = network(SPLICED)
    frames = IoSpecification.from_range
    request = ComputationRequest(
        inputs=[frames("input", -1, 5), frames("ivector", 0, 1)],
        outputs=[frames("output", 0, 5), frames("output-side", 0, 5)],
    )
    return nnet, compile_computation(nnet, request)


def recurrent() -> tuple[Nnet, NnetComputation]:
    """A network, and its loop of chunks of four frames."""
    nnet = network(RECURRENT)
    return nnet, compile_looped(nnet, looped_requests(nnet, 4))


def rows_of_spliced() -> dict[str, np.ndarray]:
    """Random inputs."""
    rng = np.random.default_rng(1)
    return {"input": rng.standard_normal((6, 4)), "ivector": rng.standard_normal((1, 2))}


@needs_compiler
@pytest.mark.parametrize("in_source", [True, False])
@pytest.mark.parametrize("options", [("-O1", "-march=native"), WITH_CBLAS], ids=["own", "cblas"])
def test_values(in_source: bool, options: tuple[str, ...]) -> None:
    """Outputs are those of the definition, with the weights in the source and in a file.

    Products are the source's own, or a CBLAS computes them.
    """
    nnet, computation = spliced()
    computer = CComputer(nnet, computation, options=options, weights_in_source=in_source)

    found = computer.forward(rows_of_spliced())

    expected = ReferenceComputer(nnet, computation).forward(rows_of_spliced())
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5)


@needs_compiler
def test_a_component_with_the_name_of_a_part() -> None:
    """A part of a composite component and a component of the name "c.0" have own weights."""
    nnet = network(NAMED_LIKE_A_PART)
    computation = compile_computation(nnet, request_for(range(3), range(3)))
    given = {"input": np.random.default_rng(2).standard_normal((3, 2), dtype=np.float32)}

    found = CComputer(nnet, computation).forward(given)["output"]

    expected = ReferenceComputer(nnet, computation).forward(given)["output"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("in_source", [True, False])
def test_weights_in_8_bits(in_source: bool) -> None:
    """Both factors of a product are rounded to integers, each row with a scale of its own."""
    nnet, computation = spliced()
    computer = CComputer(nnet, computation, weights_in_source=in_source, int8=True)
    rows, ivector = rows_of_spliced().values()

    found = computer.forward(rows_of_spliced())["output-side"]

    def rounded(values: np.ndarray) -> np.ndarray:
        scales = np.abs(values).max(axis=1, keepdims=True) / 127
        return np.rint(values / scales) * scales

    affine = nnet.component("affine")
    x = np.concatenate([rows[:-1], rows[1:], np.repeat(ivector, 5, axis=0)], axis=1)
    exact = x @ affine.linear_params.T + affine.bias_params
    expected = rounded(x) @ rounded(affine.linear_params).T + affine.bias_params
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert 1e-4 < np.abs(found - exact).max() < 0.05


@needs_compiler
def test_a_loop_and_instances_side_by_side() -> None:
    """Chunks of two instances continue one another; after a reset, the first one follows."""
    nnet, computation = recurrent()
    computers = [kind(nnet, computation) for kind in (CComputer, ReferenceComputer) for _ in "ab"]
    utterances = np.random.default_rng(0).standard_normal((2, 24, 4)).astype(np.float32)

    for _ in range(2):
        for chunks in zip(*(np.split(rows, 6) for rows in utterances), strict=True):
            found_and_expected = [
                computer.forward({"input": chunk})["output"]
                for computer, chunk in zip(computers, [*chunks, *chunks], strict=True)
            ]
            np.testing.assert_allclose(found_and_expected[:2], found_and_expected[2:], atol=1e-5)
        for computer in computers:
            computer.reset()


@needs_compiler
def test_a_program(tmp_path: Path) -> None:
    """With NNET3_MAIN, the file is a program, which maps weights or reads them from a pipe.

    It says what it lacks.
    """
    nnet, computation = recurrent()
    to_c(nnet, computation, name="stream", weights_in_source=False).write(tmp_path)
    command = [str(COMPILER), *STRICT, "-DNNET3_MAIN", "stream.c", "-o", "stream", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    rows = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)

    def run(
        *arguments: str, data: bytes, pass_fds: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        command = ["./stream", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, input=data, capture_output=True, pass_fds=pass_fds
        )

    whole = run("stream.weights", data=rows.tobytes())
    found = np.frombuffer(whole.stdout, np.float32).reshape(12, 3)
    computer = CComputer(nnet, computation)
    expected = [computer.forward({"input": chunk})["output"] for chunk in np.split(rows, 3)]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    assert (whole.returncode, whole.stderr) == (0, b"")
    part = run("stream.weights", data=rows[:5].tobytes())
    assert (part.returncode, len(part.stdout)) == (1, 4 * 12)
    assert part.stderr == b"./stream: the input ends inside of a call\n"
    reader, writer = os.pipe()
    with open(writer, "wb") as pipe:
        pipe.write((tmp_path / "stream.weights").read_bytes())
    piped = run(f"/proc/self/fd/{reader}", data=rows.tobytes(), pass_fds=[reader])
    os.close(reader)
    assert piped.stdout == whole.stdout
    (tmp_path / "short").write_bytes((tmp_path / "stream.weights").read_bytes()[:-1])
    for arguments, message in {
        (): "usage: ./stream WEIGHTS < inputs > outputs",
        ("a", "b"): "usage: ./stream WEIGHTS < inputs > outputs",
        ("none",): "./stream: none cannot be read, or is too short",
        ("short",): "./stream: short cannot be read, or is too short",
    }.items():
        wrong = run(*arguments, data=b"")
        assert (wrong.returncode, wrong.stderr.decode()) == (2, f"{message}\n")


def test_the_text() -> None:
    """The header says how to call it; the source includes three headers and allocates nothing."""
    nnet, computation = recurrent()

    source = to_c(nnet, computation, name="digits")

    assert "   call 0: input input 4 x 4, output output 4 x 3\n" in source.header
    assert "   then again from call 1 on\n" in source.header
    assert "void digits_step(struct digits *self, const float *in_input, float *out_output);\n" in (
        source.header
    )
    before, _ = source.source.split("#ifdef NNET3_MAIN")
    included = set(re.findall(r"#include (\S+)", before + source.header))
    assert included == {'"digits.h"', "<math.h>", "<stdint.h>", "<string.h>"}
    assert "malloc" not in source.source
    assert "/* c" in before
    assert ": affine, AffineComponent */" in before
    assert source.weights is None


def test_copies() -> None:
    """Pickles and copies are equal."""
    source = to_c(*spliced())

    assert copy.deepcopy(source) == pickle.loads(pickle.dumps(source)) == source  # noqa: S301


@needs_compiler
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler here")
def test_the_header_in_cplusplus(tmp_path: Path) -> None:
    """A C++ program calls functions that a C compiler has compiled."""
    to_c(*spliced(), name="digits").write(tmp_path)
    tmp_path.joinpath("main.cpp").write_text(
        '#include "digits.h"\nstatic struct digits one;\nint main() { digits_init(&one); }\n'
    )

    subprocess.run([str(COMPILER), "-c", "digits.c"], cwd=tmp_path, check=True)
    subprocess.run(["c++", "main.cpp", "digits.o", "-lm"], cwd=tmp_path, check=True)


def test_a_file_of_weights() -> None:
    """Weights in a file are those in the source, in panels of 16 columns."""
    nnet, computation = spliced()

    weights = to_c(nnet, computation, weights_in_source=False).weights

    affine = nnet.component("affine")
    assert weights is not None
    found = np.frombuffer(weights, "<f4")
    np.testing.assert_array_equal(found[: 2 * 10 * 16], panels(affine.linear_params).reshape(-1))
    np.testing.assert_array_equal(found[320:339], affine.bias_params)
    assert len(found) == 320 + 32


def test_integer_panels() -> None:
    """Integers stand in groups of four columns of the input, behind what an offset of 128 adds."""
    matrix = np.arange(-51, 51, dtype=np.float32).reshape(17, 6)

    words, scales = integer_panels(matrix)

    panels_of_bytes = words.view(np.int8).reshape(2, 1 + 2, 16, 4)
    integers = panels_of_bytes[:, 1:].transpose(0, 2, 1, 3).reshape(32, 8)
    np.testing.assert_array_equal(integers[:17, :6], np.rint(matrix / scales[:, None]))
    assert np.abs(integers[:17]).max(axis=1).tolist() == [127] * 17
    assert not integers[17:].any()
    assert not integers[:, 6:].any()
    sums = np.ascontiguousarray(panels_of_bytes[:, 0]).view(np.int32).reshape(-1)
    np.testing.assert_array_equal(sums, -128 * integers.sum(axis=1, dtype=np.int32))


def test_panels() -> None:
    """Panels have the columns of the output side by side, the last one filled up."""
    matrix = np.arange(34, dtype=np.float32).reshape(17, 2)

    found = panels(matrix)

    assert found.shape == (2, 2, 16)
    np.testing.assert_array_equal(found[0], matrix[:16].T)
    np.testing.assert_array_equal(found[1, :, 0], matrix[16])
    assert not found[1, :, 1:].any()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0f"), (1.0, "1.0f"), (-0.1, "-0.100000001f"), (1e20, "1.00000002e+20f")],
)
def test_numbers(value: float, text: str) -> None:
    """A number of single precision is written so that C reads the same one."""
    assert real(value) == text


RANDOM = stacked(4, "mask Dropout dim=4 dropout-proportion=0.5")
TWINS = """
input-node name=input dim=4
output-node name=a-b input=input
output-node name=a.b input=input
"""


def test_names_do_not_end_comments() -> None:
    """A component's name, which a file chooses, adds no code to the source."""
    nnet, computation = spliced()
    names = ["*/int(*f)(void);/*" if name == "relu" else name for name in nnet.component_names]
    nodes = [
        attrs.evolve(node, component=names[1]) if node.name == "relu" else node
        for node in nnet.nodes
    ]
    hostile = attrs.evolve(nnet, component_names=tuple(names), nodes=tuple(nodes))

    source = to_c(hostile, computation).source

    assert "__int__f__void____, RectifiedLinearComponent */" in source
    assert "(*f)" not in source
