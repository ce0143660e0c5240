"""The time of a stream from the last frame of a chunk to its outputs, beside the chunk's own time.

    OPENBLAS_NUM_THREADS=1 python benchmarks/stream_latency.py
    OPENBLAS_NUM_THREADS=1 python benchmarks/stream_latency.py --frames 1000000
    OPENBLAS_NUM_THREADS=1 python benchmarks/stream_latency.py --streams 1000

Frames come one at a time, and the push that completes a chunk is timed: median and 99th percentile.
"chunk" is the median time of a computer with the inputs of such a chunk; its runs alternate with
the pushes. "ratio" is the ratio of the medians. All times are processor time of the thread, in
milliseconds.

With `--frames`, a small recurrent network gets this number of frames instead; the benchmark prints
the largest memory of the process so far after each tenth of them.

With `--streams`, this number of its sequences are open at a time. Each has its own length; when one
ends, another begins. After each tenth of the rounds, the benchmark prints the number of finished
sequences, the processor time of a chunk, and the largest memory so far. It also prints the largest
difference of their outputs from those of each sequence alone.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence

import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler, Model
from nnet3_compiler import chunks_with_state, looped_requests, with_ivector_period
from nnet3_descriptors import parse_config
from nnet3_descriptors.editing import for_inference
from nnet3_runtime_cuda import NnetComputer

NETWORKS = "cnn-tdnnf", "tdnn-lstm", "tdnnf"

SUBSAMPLING = 3

SMALL = """
input-node name=input dim=40
component name=affine type=AffineComponent input-dim=104 output-dim=64 param-stddev=0.05
component-node name=affine component=affine input=Append(input, IfDefined(Offset(tanh, -1)))
component name=tanh type=TanhComponent dim=64
component-node name=tanh component=tanh input=affine
output-node name=output input=tanh
"""


def timed(call: Callable[[], object]) -> float:
    """Processor time of a call, in milliseconds."""
    start = time.thread_time()
    call()
    return (time.thread_time() - start) * 1000


def chunk_alone(model: Model, chunk_size: int) -> Callable[[], object]:
    """A call that only computes a chunk as a stream does."""
    nnet = with_ivector_period(for_inference(model.nnet), chunk_size)
    requests = looped_requests(nnet, chunk_size, frame_subsampling_factor=SUBSAMPLING)
    chunks = chunks_with_state(nnet, requests)
    request = chunks.chunks[-1].request
    computation = CachingCompiler(chunks.nnet).compile(request)
    computer = NnetComputer(chunks.nnet, computation, threads=1)
    rng = np.random.default_rng(0)
    given = {
        io.name: rng.standard_normal((len(io.indexes), chunks.nnet.node_dim(io.name)), np.float32)
        for io in request.inputs
    }
    return lambda: computer.forward(given)


def latencies(model: Model, chunk_size: int, count: int) -> tuple[list[float], list[float]]:
    """Times of `count` pushes that complete a chunk, and of as many chunks alone."""
    stream = model.stream(frames_per_chunk=chunk_size, frame_subsampling_factor=SUBSAMPLING)
    alone = chunk_alone(model, stream.chunk_size)
    rng = np.random.default_rng(0)
    ivector = rng.standard_normal(model.ivector_dim, np.float32)
    pushes, chunks = [], []
    while len(pushes) < count:
        for _ in range(stream.frames_to_outputs() - 1):
            stream.push(rng.standard_normal((1, model.input_dim), np.float32), ivector)
        last = rng.standard_normal((1, model.input_dim), np.float32)
        pushes.append(timed(lambda last=last: stream.push(last, ivector)))  # type: ignore[misc]
        chunks.append(timed(alone))
    return pushes[count // 10 :], chunks[count // 10 :]  # the first ones load parameters


def print_latencies(names: Sequence[str], sizes: Sequence[int], count: int) -> None:
    """Prints a line for each network and size of chunk."""
    print(f"{'network':10s} {'frames':>6} {'median':>8} {'99 %':>8} {'chunk':>8} {'ratio':>6}")
    for name in names:
        text = BENCHMARKS[name].config()
        model = Model(parse_config(text, rng=np.random.default_rng(0)), threads=1)
        for size in sizes:
            pushes, chunks = latencies(model, size, count)
            median, last = np.quantile(pushes, [0.5, 0.99])
            chunk = float(np.median(chunks))
            ratio = median / chunk
            figures = f"{median:8.2f} {last:8.2f} {chunk:8.2f} {ratio:6.2f}"
            print(f"{name:10s} {size:6d} {figures}", flush=True)


def print_memory(num_frames: int) -> None:
    """Pushes frames to a stream, and prints the largest memory of the process so far."""
    stream = Model(parse_config(SMALL), threads=1).stream(frames_per_chunk=20)
    frames, pushed = np.random.default_rng(0).standard_normal((23, 40), np.float32), 0
    print(f"{'frames':>9} {'MB at most':>10}")
    for tenth in range(1, 11):
        while pushed < num_frames * tenth // 10:
            stream.push(frames)
            pushed += len(frames)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{pushed:9d} {most:10.1f}", flush=True)


def print_streams(count: int, rounds: int) -> None:
    """Runs `count` sequences at a time, and prints time, memory and differences on the way."""
    model = Model(parse_config(SMALL, rng=np.random.default_rng(0)), threads=1)
    stream = model.stream(frames_per_chunk=20, sequences=16)
    alone = model.stream(frames_per_chunk=20)
    rng = np.random.default_rng(1)
    source = rng.standard_normal((2000, model.input_dim), np.float32)

    def begun(name: int) -> tuple[int, int]:
        """The first frame of a sequence in the source, and its number of frames."""
        own = np.random.default_rng(name)
        return int(own.integers(1000)), int(own.integers(20, 600))

    open_ones = dict.fromkeys(range(count), 0)
    outputs: dict[int, list[np.ndarray]] = {name: [] for name in open_ones}
    ended, next_name, worst, spent, chunks = 0, count, 0.0, 0.0, 0
    print(f"{'ended':>8} {'ms a chunk':>10} {'MB at most':>10} {'differ by':>10}")
    for round_ in range(1, rounds + 1):
        given, finished = {}, []
        for name, pushed in open_ones.items():
            begin, length = begun(name)
            end = min(length, pushed + int(rng.integers(1, 40)))
            given[name] = source[begin + pushed : begin + end]
            open_ones[name] = end
            if end == length:
                finished.append(name)
        start = time.thread_time()
        for name, rows in stream.push_many(given, finished=finished).items():
            outputs[name].append(rows)
            chunks += -(-len(rows) // 20)
        spent += time.thread_time() - start
        for name in finished:
            begin, length = begun(name)
            found = np.concatenate(outputs.pop(name))
            if name % 10 == 0:
                first = alone.push(source[begin : begin + length])
                expected = np.concatenate([first, alone.finish()])
                worst = max(worst, float(np.abs(found - expected).max()))
            del open_ones[name]
            open_ones[next_name], outputs[next_name] = 0, []
            next_name += 1
        ended += len(finished)
        if round_ * 10 % rounds < 10:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            each = spent / max(1, chunks) * 1000
            print(f"{ended:8d} {each:10.3f} {most:10.1f} {worst:10.1e}", flush=True)


def main() -> None:
    """Prints the figures that the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure streams.")
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=", ".join(NETWORKS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 21, 51], help="of chunks")
    parser.add_argument("--chunks", type=int, default=200, help="for each figure")
    parser.add_argument("--frames", type=int, help="print memory for so many frames instead")
    parser.add_argument("--streams", type=int, help="have so many sequences come and go instead")
    parser.add_argument("--rounds", type=int, default=200, help="of pushes, with --streams")
    arguments = parser.parse_args()
    if arguments.streams:
        print_streams(arguments.streams, arguments.rounds)
    elif arguments.frames:
        print_memory(arguments.frames)
    else:
        print_latencies(arguments.networks, arguments.sizes, arguments.chunks)


if __name__ == "__main__":
    main()
