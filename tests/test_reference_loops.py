"""Looped computation: requests are Kaldi's, and outputs chunk by chunk are Kaldi's."""

import re
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import assert_same_archive, read_archive
from nnet3 import Model
from nnet3_compiler import (
    compile_looped,
    looped_chunk_size,
    looped_requests,
    with_ivector_period,
)
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet, read_nnet
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer
from reference_cases import TOOLS_REFERENCE

CASES = [("lstmp", 10, 1), ("lstmp", 21, 1), ("tdnnf-chain", 21, 3)]


def case_file(name: str, chunk: int, subsampling: int, suffix: str) -> Path:
    """The file of a case: looped.NET.cC[sS].SUFFIX."""
    sampled = f"s{subsampling}" if subsampling > 1 else ""
    return TOOLS_REFERENCE / f"looped.{name}.c{chunk}{sampled}.{suffix}"


def prepared(name: str, chunk: int, subsampling: int) -> tuple[Nnet, list[ComputationRequest]]:
    """The network prepared for looped computation, and its three requests."""
    nnet = Model(read_nnet(TOOLS_REFERENCE / f"{name}.raw")).nnet  # prepared as by the tools
    assert looped_chunk_size(nnet, chunk, subsampling) == chunk
    nnet = with_ivector_period(nnet, chunk)
    return nnet, looped_requests(nnet, chunk, frame_subsampling_factor=subsampling)


def printed_indexes(text: str) -> list[list[int]]:
    """The indexes of a printed list such as (0,-9:29), (0,30)."""
    indexes = []
    for n, first, last in re.findall(r"\((\d+),(-?\d+)(?::(-?\d+))?\)", text):
        indexes += [[int(n), t, 0] for t in range(int(first), int(last or first) + 1)]
    return indexes


@pytest.mark.parametrize(("name", "chunk", "subsampling"), CASES)
def test_requests(name: str, chunk: int, subsampling: int) -> None:
    """The three requests equal those that Kaldi prints."""
    _, requests = prepared(name, chunk, subsampling)
    printed = case_file(name, chunk, subsampling, "txt").read_text().split("matrix ")[0]
    lines = re.findall(r"(input|output)-\d+: name=(\S+), .*indexes=\[(.*)\]", printed)
    ours = [
        (kind, io.name, io.indexes.tolist())
        for request in requests
        for kind, list_of_io in (("input", request.inputs), ("output", request.outputs))
        for io in list_of_io
    ]

    assert [(kind, node, printed_indexes(text)) for kind, node, text in lines] == ours


def chunk_by_chunk(
    nnet: Nnet,
    requests: list[ComputationRequest],
    chunk: int,
    subsampling: int,
    *,
    optimized: bool,
    computer_type: type[NnetComputer | OnnxComputer | ReferenceComputer] = NnetComputer,
) -> dict[str, np.ndarray]:
    """The outputs of all utterances, with repeated edge frames."""
    options = OptimizeOptions(optimize=optimized, verify=True)
    computation = compile_looped(
        nnet, requests, optimize=lambda compiled: optimize(nnet, compiled, options)
    )
    computer = computer_type(nnet, computation)
    times = [request.inputs[0].indexes[:, 1] for request in requests]
    outputs = {}
    for key, frames in read_archive(features_of(nnet)).items():
        computer.reset()
        num_rows = -(-len(frames) // subsampling)
        rows: list[np.ndarray] = []
        while sum(map(len, rows)) < num_rows:
            number = len(rows)
            wanted = times[min(number, 2)] + max(0, number - 2) * chunk
            given = frames[np.clip(wanted, 0, len(frames) - 1)]
            rows.append(computer.forward({"input": given})["output"])
        outputs[key] = np.concatenate(rows)[:num_rows]
    return outputs


def features_of(nnet: Nnet) -> Path:
    """The archive of features with the network's dimension."""
    return TOOLS_REFERENCE / f"feats{nnet.node_dim('input')}.ark"


@pytest.mark.parametrize("computer_type", [NnetComputer, OnnxComputer, ReferenceComputer])
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize(("name", "chunk", "subsampling"), CASES)
def test_outputs(
    name: str,
    chunk: int,
    subsampling: int,
    optimized: bool,
    computer_type: type[NnetComputer | OnnxComputer | ReferenceComputer],
) -> None:
    """Utterances computed chunk by chunk give Kaldi's outputs."""
    nnet, requests = prepared(name, chunk, subsampling)

    outputs = chunk_by_chunk(
        nnet, requests, chunk, subsampling, optimized=optimized, computer_type=computer_type
    )

    expected = read_archive(case_file(name, chunk, subsampling, "ark"))
    assert_same_archive(outputs, expected, 1e-5, is_relative=True)
