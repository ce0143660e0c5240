"""The tool nnet3-compute-looped: Kaldi's archives, and i-vectors that change."""

import functools
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import assert_same_archive, read_archive
from nnet3 import load
from nnet3_compiler import compile_computation, looped_requests, with_ivector_period
from nnet3_runtime_reference import ReferenceComputer
from reference_cases import TOOLS_REFERENCE
from test_reference_loops import CASES, case_file, features_of
from tool_runs import run_tool

IVECTOR_MODEL = TOOLS_REFERENCE / "tdnn-ivector.raw"


compute = functools.partial(run_tool, "nnet3-compute-looped", expected=0)


@pytest.mark.parametrize(("name", "chunk", "subsampling"), CASES)
def test_outputs_are_those_of_kaldi(
    name: str, chunk: int, subsampling: int, tmp_path: Path
) -> None:
    """The tool writes the archive of Kaldi's looped decoder."""
    model = TOOLS_REFERENCE / f"{name}.raw"
    features = features_of(load(model).nnet)

    compute(
        f"--frames-per-chunk={chunk}",
        f"--frame-subsampling-factor={subsampling}",
        "--num-threads=2",
        model,
        f"ark:{features}",
        f"ark:{tmp_path / 'output.ark'}",
    )

    expected = read_archive(case_file(name, chunk, subsampling, "ark"))
    assert_same_archive(read_archive(tmp_path / "output.ark"), expected, 1e-5, is_relative=True)


def by_definition(frames: np.ndarray, online: np.ndarray, chunk: int, period: int) -> np.ndarray:
    """The outputs of an utterance: its chunks in one computation, i-vectors as Kaldi reads them.

    Kaldi uses, for all rows of a chunk, the online i-vector of the frame after the chunk's input.
    """
    nnet = with_ivector_period(load(IVECTOR_MODEL).nnet, chunk)
    first, second, _ = looped_requests(nnet, chunk)
    num_chunks = -(-len(frames) // chunk)
    ends = [
        int(first.inputs[0].indexes[-1, 1]) + 1 + number * chunk for number in range(num_chunks)
    ]
    rows = [min(end // period, len(online) - 1) for end in ends]
    begin = int(first.inputs[0].indexes[0, 1])
    given = {"input": frames[np.arange(begin, ends[-1]).clip(0, len(frames) - 1)]}
    counts = [len(first.inputs[1].indexes)] + [len(second.inputs[1].indexes)] * (num_chunks - 1)
    given["ivector"] = online[np.repeat(rows, counts)]
    whole = looped_requests(nnet, chunk * num_chunks, ivector_period=chunk)[0]
    computer = ReferenceComputer(nnet, compile_computation(nnet, whole))
    return computer.forward(given)["output"][: len(frames)]


def test_online_ivectors(tmp_path: Path) -> None:
    """Each chunk has the i-vector that Kaldi gives it."""
    online = read_archive(TOOLS_REFERENCE / "online_ivectors3.ark")
    features = TOOLS_REFERENCE / "feats5.ark"

    compute(
        f"--online-ivectors=ark:{TOOLS_REFERENCE / 'online_ivectors3.ark'}",
        "--online-ivector-period=10",
        "--frames-per-chunk=7",
        IVECTOR_MODEL,
        f"ark:{features}",
        f"ark:{tmp_path / 'output.ark'}",
    )

    for key, outputs in read_archive(tmp_path / "output.ark").items():
        expected = by_definition(read_archive(features)[key], online[key], 7, 10)
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
