"""How long networks take to become ONNX models, and how large these are.

`python benchmarks/onnx_models.py` prints, for each benchmark network, for inference with any number
of sequences: seconds of processor time from the optimized computation to the checked model, nodes,
and how far the outputs of ONNX Runtime are from those of NnetComputer. With `--stream`: the round
of a looped computation.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnxruntime
from networks import BENCHMARKS
from nnet3_compiler import (
    NnetComputation,
    compile_computation,
    compile_looped,
    looped_chunk_size,
    looped_requests,
    with_ivector_period,
)
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import to_onnx
from workload import Workload, flat

CHUNK = 21
SUBSAMPLING = 3


def looped(workload: Workload) -> NnetComputation:
    """The looped computation of a network for speech recognition."""
    chunk = looped_chunk_size(workload.nnet, CHUNK, SUBSAMPLING)
    nnet = with_ivector_period(workload.nnet, chunk)
    requests = looped_requests(nnet, chunk, frame_subsampling_factor=SUBSAMPLING)
    return compile_looped(nnet, requests, optimize=lambda compiled: optimize(nnet, compiled))


def row(name: str, *, stream: bool) -> str:
    """The row of a network in the table."""
    workload = Workload.make(name, "infer", 1)
    nnet = workload.nnet
    if stream:
        computation = looped(workload)
    else:
        computation = optimize(nnet, compile_computation(nnet, workload.request))
    start = time.process_time()
    part = "round" if stream else "whole"
    model = to_onnx(nnet, computation, part=part, sequences="sequences")
    seconds = time.process_time() - start
    cells = [
        name,
        f"{len(computation.commands):,}",
        f"{len(model.graph.node):,}",
        f"{model.ByteSize() / 2**20:.0f}",
        f"{seconds:.1f}",
    ]
    if not stream:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        expected = NnetComputer(nnet, computation).forward(flat(workload.inputs))["output"]
        [found] = session.run(["output"], dict(workload.inputs))
        error = np.abs(found.reshape(expected.shape) - expected).max() / np.abs(expected).max()
        cells.append(f"{error:.0e}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", action="store_true", help="rounds of looped computations")
    stream = parser.parse_args().stream
    titles = ["network", "commands", "nodes", "MiB", "seconds", *([] if stream else ["error"])]
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for name in BENCHMARKS:
        if not (stream and name == "xvector"):
            print(row(name, stream=stream), flush=True)


if __name__ == "__main__":
    main()
