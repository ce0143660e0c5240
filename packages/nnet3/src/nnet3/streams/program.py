"""The programs that compute the chunks of streams, for any number of streams of a network."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import numpy as np
from nnet3_compiler import (
    Chunk,
    ChunksWithState,
    chunks_with_state,
    looped_requests,
    stream_network,
    with_least_context,
)
from nnet3_descriptors import Nnet
from nnet3_descriptors.editing import remove_orphan_nodes
from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.device import DeviceNnet

from nnet3.caching import CachingCompiler
from nnet3.chunks import integer
from nnet3.computer_pool import ComputerPool
from nnet3.output_scores import ScoreKeywords

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing import Tracer


MOST_SEQUENCES = 1 << 16
"""The most sequences at a time: programs for more would fill the memory."""


class StreamKeywords(ScoreKeywords, total=False):
    """The fields of `StreamOptions` and `ScoreOptions` as keywords, for type checkers."""

    frames_per_chunk: int
    frame_subsampling_factor: int | None
    ivector_period: int | None
    extra_left_context_initial: int
    sequences: int


@attrs.frozen(kw_only=True)
class StreamOptions:
    """The options for cutting a stream. All counts except `sequences` are in input frames.

    Attributes:
        frames_per_chunk: Frames of output for each run of the network, before subsampling.
        frame_subsampling_factor: One row of output for this many frames.
        ivector_period: Number of frames that share an i-vector; None for one i-vector in each
            chunk.
        extra_left_context_initial: Frames before the first one beyond what the network needs.
        sequences: Number of sequences that are computed at a time.

    Raises:
        RunError: a value is out of range.
    """

    frames_per_chunk: int = integer(20, 1)
    frame_subsampling_factor: int = integer(1, 1)
    ivector_period: int | None = integer(None, 1)
    extra_left_context_initial: int = integer(0, 0)
    sequences: int = integer(1, 1, most=MOST_SEQUENCES)


INPUT, IVECTOR, OUTPUT = "input", "ivector", "output"


class ChunkInputs(NamedTuple):
    """The inputs of a chunk; times count from its first frame.

    Attributes:
        begin: The time of the first frame of input.
        end: The time after the last one.
        ivector_times: For each i-vector, the time of the first frame that it serves.
        state: (rows, columns) of the values that the previous chunk hands on, for each component
            node.
    """

    begin: int
    end: int
    ivector_times: tuple[int, ...]
    state: Mapping[str, tuple[int, int]]


class StreamProgram:
    """A network with the programs for its chunks; it keeps no data of streams.

    Any number of streams, on any threads, may run their chunks by it.

    Attributes:
        options: The options for cutting streams.
        dim: Columns of the frames.
        ivector_dim: Dimension of the i-vectors; 0 if the network takes none.
        output_dim: Columns of the outputs.
        chunk_size: Frames of a chunk.
        ivector_period: Number of frames that share an i-vector.
        inputs: The inputs of the first chunks; all further chunks have the inputs of the last one
            listed.
    """

    def __init__(
        self,
        nnet: Nnet,
        device_nnet: DeviceNnet,
        options: StreamOptions,
        trace: Tracer | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Compiles the chunks, so that no push has to wait for the compiler.

        Args:
            nnet: The network from which `digest` is computed.
            device_nnet: The network that runs; it must not be trained.
            options: The options for cutting streams.
            trace: Receives what each command reads and writes.
            cache_dir: The folder with computations of earlier processes.

        Raises:
            NotComputableError, CompilationError: the outputs cannot be computed chunk by chunk, or
                the network looks back so far that its state does not repeat within a hundred
                chunks.
            UnsupportedComponentError: it has a component of a type that is not implemented.
            DeviceMemoryError: the device lacks memory.
        """
        # Chunks begin at multiples of the modulus of all outputs, as in Kaldi.
        modulus = remove_orphan_nodes(nnet).modulus
        looped, size = stream_network(
            device_nnet.nnet,
            options.frames_per_chunk,
            frame_subsampling_factor=math.lcm(options.frame_subsampling_factor, modulus),
            ivector_period=options.ivector_period,
        )
        self.options, self.chunk_size = options, size
        self.ivector_period = options.ivector_period or size
        dims = {node.name: node.dim for node in nnet.input_nodes}
        self.dim, self.ivector_dim = dims[INPUT], dims.get(IVECTOR, 0)
        self.output_dim = nnet.node_dim(OUTPUT)
        self._nnet = nnet
        self._chunks = with_least_context(nnet, looped, partial(self._chunks_of, looped))
        compiler = CachingCompiler(self._chunks.nnet, cache_dir=cache_dir)
        last = len(self._chunks.chunks) - 1
        kinds = [(number, 1) for number in range(last + 1)]
        if options.sequences > 1:
            kinds.append((last, options.sequences))
        self._requests = {
            (number, count): self._chunks.chunk(number).for_sequences(count)
            for number, count in kinds
        }
        device_nnet = device_nnet.with_network(self._chunks.nnet)
        self._pool = ComputerPool(
            device_nnet,
            compiler.compile,
            capacity=len(kinds),
            trace=trace,
            shares_memory=False,  # streams on several threads run different kinds at a time
        )
        self.inputs = tuple(map(self._inputs_of, self._chunks.chunks))
        for request in self._requests.values():
            self._pool.prepare(request)

    def _chunks_of(self, looped: Nnet, context: tuple[int, int]) -> ChunksWithState:
        """The chunks of a network with an i-vector period, with so much context on both sides."""
        requests = looped_requests(
            looped,
            self.chunk_size,
            frame_subsampling_factor=self.options.frame_subsampling_factor,
            ivector_period=self.ivector_period,
            extra_left_context=self.options.extra_left_context_initial,
            context=context,
        )
        return chunks_with_state(looped, requests)

    def inputs_of(self, number: int) -> ChunkInputs:
        """The inputs of a chunk by its number, from 0."""
        return self.inputs[min(number, len(self.inputs) - 1)]

    def most_at_a_time(self, number: int) -> int:
        """The number of sequences for which one run can compute the chunk of that number."""
        return self.options.sequences if number >= len(self.inputs) - 1 else 1

    def run(
        self, number: int, given: Sequence[Mapping[str, FloatArray]]
    ) -> list[tuple[FloatArray, dict[str, FloatArray]]]:
        """Computes the chunk of that number for some sequences.

        Args:
            number: Of the chunk, from 0.
            given: For each sequence, at most `most_at_a_time`, the values of all inputs: frames,
                i-vectors, and the state.

        Returns:
            For each sequence the output, (rows, dim), and the state for its next chunk.

        Raises:
            RunError: a value is not finite.
        """
        number = min(number, len(self.inputs) - 1)
        count = 1 if len(given) == 1 else self.options.sequences
        request, chunk = self._requests[number, count], self._chunks.chunk(number)
        arrays = {
            io.name: _stacked([values[io.name] for values in given], len(io.indexes))
            for io in request.inputs
        }

        def part(array: FloatArray, sequence: int) -> FloatArray:
            rows = len(array) // count
            return array[sequence * rows : (sequence + 1) * rows].copy()

        return self._pool.forward(
            request,
            arrays,
            lambda outputs: [
                (
                    part(outputs[OUTPUT], each),
                    {node: part(outputs[name], each) for node, name in chunk.state_outputs},
                )
                for each in range(len(given))
            ],
            is_alone=False,
        )

    def _inputs_of(self, chunk: Chunk) -> ChunkInputs:
        times = {io.name: io.indexes[:, 1].tolist() for io in chunk.request.inputs}
        dims = {name: self._chunks.nnet.node_dim(name) for name in times}
        frames = times.pop(INPUT)
        return ChunkInputs(
            begin=frames[0],
            end=frames[-1] + 1,
            ivector_times=tuple(times.pop(IVECTOR, ())),
            state={name: (len(rows), dims[name]) for name, rows in times.items()},
        )

    @cached_property
    def digest(self) -> str:
        """A digest of the network, all its parameters, and the inputs of its chunks.

        A program refuses states with another digest.
        """
        digest = hashlib.sha256(repr((self.chunk_size, self.inputs)).encode())
        digest.update(self._nnet.to_bytes())
        return digest.hexdigest()


def _stacked(arrays: Sequence[FloatArray], rows: int) -> FloatArray:
    """The arrays below each other, with zeros up to `rows` rows."""
    if len(arrays) * len(arrays[0]) == rows:
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    stacked = np.zeros((rows, arrays[0].shape[1]), np.float32)
    np.concatenate(arrays, out=stacked[: len(arrays) * len(arrays[0])])
    return stacked
