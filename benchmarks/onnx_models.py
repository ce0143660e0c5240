"""The time of exporting networks to ONNX models, and the size of the models.

`python benchmarks/onnx_models.py` prints a line for each benchmark network, for inference with any
number of sequences. It has seconds of processor time from the optimized computation to the checked
model, nodes, and the difference of the outputs of ONNX Runtime and NnetComputer. With `--stream`
the line is for the round of a looped computation. With `--peer` it has the processor time of a run
in ONNX Runtime on one thread, for 1 and 8 sequences, relative to that of PyTorch's export of the
same network (`pip install torch`). This is the median of `--turns` pairs, every other one of which
begins with the peer. With `--int8` it has, for 1 and 8 sequences, the time of the model in 8 bits
relative to that of the model itself, in the same way. Pin it to a core (`taskset -c 1`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from networks import BENCHMARKS
from nnet3_compiler import (
    compile_computation,
    compile_looped,
    looped_chunk_size,
    looped_requests,
    with_ivector_period,
)
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import quantized, to_onnx
from peers.runners import missing, prepare
from workload import Workload, flat

CHUNK = 21
SUBSAMPLING = 3


def looped(workload: Workload) -> tuple[Nnet, NnetComputation]:
    """The looped computation of a network for speech recognition, and the network."""
    chunk = looped_chunk_size(workload.nnet, CHUNK, SUBSAMPLING)
    nnet = with_ivector_period(workload.nnet, chunk)
    requests = looped_requests(nnet, chunk, frame_subsampling_factor=SUBSAMPLING)
    return nnet, compile_looped(nnet, requests, optimize=lambda compiled: optimize(nnet, compiled))


def row(name: str, *, stream: bool) -> str:
    """The row of a network in the table."""
    workload = Workload.make(name, "infer", 1)
    nnet = workload.nnet
    if stream:
        nnet, computation = looped(workload)
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


def exported(name: str) -> onnx.ModelProto:
    """The model of a network, for any number of sequences."""
    one = Workload.make(name, "infer", 1)
    computation = optimize(one.nnet, compile_computation(one.nnet, one.request))
    return to_onnx(one.nnet, computation, sequences="sequences")


def runner(model: onnx.ModelProto, workload: Workload) -> Callable[[], list[np.ndarray]]:
    """Runs a model in ONNX Runtime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(["output"], dict(workload.inputs))


def compared(name: str, turns: int, *, int8: bool) -> str:
    """The row of a network in the table of times relative to another model of it."""
    model = exported(name)
    cells = [name]
    for sequences in (1, 8):
        workload = Workload.make(name, "infer", sequences)
        ours = runner(model, workload)
        if int8:
            runs = runner(quantized(model), workload), ours
        else:
            runs = ours, prepare("ONNX Runtime", name, workload.nnet, workload.inputs, None)
        [found], [expected] = (run() for run in runs)
        error = np.abs(found.reshape(expected.shape) - expected).max() / np.abs(expected).max()
        if not int8 and not error < 1e-3:
            raise SystemExit(f"{name}: the two models differ by {error:.0e}")
        ratios = []
        for turn in range(turns):
            seconds = [0.0, 0.0]
            for number in (0, 1) if turn % 2 else (1, 0):
                start = time.process_time()
                runs[number]()
                seconds[number] = time.process_time() - start
            ratios.append(seconds[0] / seconds[1])
        cells.append(f"{np.median(ratios):.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*BENCHMARKS], help="all by default")
    parser.add_argument("--stream", action="store_true", help="rounds of looped computations")
    parser.add_argument("--peer", action="store_true", help="times beside PyTorch's export")
    parser.add_argument("--int8", action="store_true", help="times of models in 8 bits")
    parser.add_argument("--turns", type=int, default=40, help="runs of each, with the last two")
    arguments = parser.parse_args()
    stream = arguments.stream
    if arguments.peer:
        lacking = missing("ONNX Runtime")
        if lacking:
            parser.error(f"--peer needs {', '.join(lacking)}")
        import torch

        torch.set_num_threads(1)
    if arguments.peer or arguments.int8:
        print("| network | n = 1 | n = 8 |\n|---|---|---|")
        for name in arguments.networks:
            print(compared(name, arguments.turns, int8=arguments.int8), flush=True)
        return
    titles = ["network", "commands", "nodes", "MiB", "seconds", *([] if stream else ["error"])]
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for name in arguments.networks:
        if not (stream and name == "xvector"):
            print(row(name, stream=stream), flush=True)


if __name__ == "__main__":
    main()
