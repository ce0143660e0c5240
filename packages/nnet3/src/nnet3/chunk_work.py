"""The work of an utterance that is computed chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import ComponentNode, Nnet
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray, as_array, as_matrix, check_output

from nnet3.batches.larger_chunks import in_groups, joined, larger, request_of, rounded_up
from nnet3.batches.minibatches import Run, Work, compute_alone
from nnet3.chunks import Chunk, ChunkOptions, check_memory, chunks, full_chunks, online_ivector_row

if TYPE_CHECKING:
    from nnet3.batches import BatchOptions
    from nnet3.computer_pool import ComputerPool
    from nnet3.known_results import KnownResults
    from nnet3.output_scores import ScoreOptions

CHUNKS_JOINED = 4
"""The number of chunks in a row that are joined. A second number would mean one more program to
compile, which costs more time than it saves."""


_WHOLE_UTTERANCE = 1000
"""Frames of a pooling window that is meant to have a whole utterance. Kaldi's x-vector recipes have
10,000; layers that are computed frame by frame pool over a hundred or two."""


class ChunkNetwork(NamedTuple):
    """A network with everything that the chunks of all utterances need.

    Attributes:
        nnet: The network in test mode.
        modulus: Chunks whose starts differ by a multiple of it need the same computation.
        input_dim: Columns of the features.
        ivector_dim: Dimension of the i-vectors; 0 if the network takes none.
        output_dim: Columns of the outputs.
        left_context: Frames that the network needs before an output frame.
        right_context: Frames that the network needs after an output frame.
        priors: (output_dim,) prior of each output, or None.
        output: The name of the output, for messages.
        whole_only: Why only whole utterances can be computed: outputs would depend on how an
            utterance is cut; or None.
        pool: Computes chunks.
        known: What is known of the network that the pool computes.
        frame_products: The products of two numbers for a frame, about.
    """

    nnet: Nnet
    modulus: int
    input_dim: int
    ivector_dim: int
    output_dim: int
    left_context: int
    right_context: int
    priors: FloatArray | None
    output: str
    whole_only: str | None
    pool: ComputerPool
    known: KnownResults
    frame_products: int


class _Utterance(NamedTuple):
    """An utterance, cut into chunks.

    Attributes:
        network: Computes the chunks.
        options: How it is cut, with chunks rounded for the modulus of the network.
        frames: (frames, input_dim).
        ivectors: (rows, ivector_dim), or None.
        period: Frames between two rows of the i-vectors; 0 if there is one row for all.
        parts: The chunks.
        result: (rows, output_dim), the outputs.
    """

    network: ChunkNetwork
    options: ChunkOptions
    frames: FloatArray
    ivectors: FloatArray | None
    period: int
    parts: list[Chunk]
    result: FloatArray

    @property
    def step(self) -> int:
        """Frames between two rows of output."""
        return self.options.frame_subsampling_factor

    def _inputs(self, chunk: Chunk, whole: Chunk) -> dict[str, FloatArray]:
        """The inputs of a chunk that a larger one computes."""
        values = {"input": self.frames[whole.input_rows(len(self.frames))]}
        if self.ivectors is not None:
            row = self._ivector_row(chunk)
            values["ivector"] = self.ivectors[row : row + 1]
        return values

    def _ivector_row(self, chunk: Chunk) -> int:
        """The row of the i-vectors that a chunk reads."""
        if self.ivectors is None or not self.period:
            return 0
        return online_ivector_row(chunk, self.period, len(self.frames), len(self.ivectors))

    def _put(self, chunk: Chunk, rows: FloatArray) -> None:
        """Takes the outputs of a chunk, perhaps followed by rows in vain."""
        first, unused = chunk.first_output // self.step, chunk.num_unused
        taken = self.result[first + unused : first + chunk.num_outputs]
        taken[:] = rows[unused : unused + len(taken)]

    def compute(self, chunk: Chunk, *, is_alone: bool) -> None:
        """Computes a chunk, on the calling thread alone or on all threads."""
        compute_alone(self.network.pool, self._run(chunk, chunk), is_alone=is_alone)

    def runs(self, batch: BatchOptions) -> Iterator[Run]:
        """The chunks as runs: some in a row as one run, where its outputs are the same."""
        for group in in_groups(self.parts, CHUNKS_JOINED, self._belong_together):
            together = self._joined(group, batch)
            if together is not None:
                yield self._run(together, together, len(group))
            else:
                yield from (self._run(chunk, self._larger(chunk)) for chunk in group)

    def _joined(self, group: list[Chunk], batch: BatchOptions) -> Chunk | None:
        """A group as one chunk, if it is full, fits in a minibatch and has the same outputs."""
        if len(group) < CHUNKS_JOINED:
            return None
        request = request_of(group[0], self.step, self.network.nnet)
        if batch.sizes(self.network.pool.bytes_of(request))[0] < len(group):
            return None
        return joined(self.network.known, group, self.step)

    def _belong_together(self, chunk: Chunk, following: Chunk) -> bool:
        """Whether neighbours follow each other, have the same shape, and read the same i-vector."""
        shapes = (
            (each.num_inputs, each.num_outputs, each.first_input - each.first_output)
            for each in (chunk, following)
        )
        return (not following.num_unused and len(set(shapes)) == 1) and (
            not self.period or self._ivector_row(chunk) == self._ivector_row(following)
        )

    def _run(self, chunk: Chunk, whole: Chunk, num_chunks: int = 1) -> Run:
        """A chunk as a run, which computes a larger one."""
        return Run(
            request=request_of(whole, self.step, self.network.nnet),
            inputs=partial(self._inputs, chunk, whole),
            take=partial(self._put, chunk),
            is_edge=self.options.has_own_context(
                is_first=chunk is self.parts[0], is_last=chunk is self.parts[-1]
            ),
            num_chunks=num_chunks,
        )

    def _larger(self, chunk: Chunk) -> Chunk:
        """The chunk whose program computes a chunk beside others."""
        most = self.options.frames_per_chunk // self.step
        wanted = rounded_up(chunk.num_outputs, most, self.network.frame_products * self.step)
        return larger(self.network.known, chunk, self.step, wanted)

    def scores(self, options: ScoreOptions) -> FloatArray:
        """The scores, when all chunks are computed.

        Raises:
            RunError: an output or a score is not finite.
        """
        what = f"the output of node '{self.network.output}'"
        check_output(self.result, what)
        scored = options.apply(self.result, self.network.priors)
        check_output(scored, f"what was made of {what} (scale, exponential)")
        return scored


def chunk_work(
    network: ChunkNetwork,
    features: npt.ArrayLike,
    ivector: npt.ArrayLike | None,
    online_ivectors: npt.ArrayLike | None,
    chunk_options: ChunkOptions,
    score_options: ScoreOptions,
    *,
    num_beside: int,
    batch_options: BatchOptions | None,
) -> Work:
    """The work of an utterance.

    Args:
        network: Computes the chunks.
        features: (frames, input_dim).
        ivector: (ivector_dim,), one i-vector for the utterance.
        online_ivectors: (rows, ivector_dim), i-vectors estimated during the utterance.
        chunk_options: The options for cutting the utterance.
        score_options: The options for turning outputs into scores.
        num_beside: This many tasks or more run beside those of this utterance.
        batch_options: If given, the work has runs, which can be computed with those of other
            utterances.

    Raises:
        RunError: an array or an option is not as `Model.compute` describes it, or an utterance of
            several chunks needs a frame at a fixed time.
        NotComputableError, CompilationError: the network gives no output for these frames; only if
            there are batch_options, else the tasks raise it.
    """
    options = chunk_options.rounded(network.modulus)
    score_options.check(network.priors)
    frames = as_matrix(features, "input", "features", network.input_dim)
    period = options.online_ivector_period if online_ivectors is not None else 0
    ivectors = _ivectors(network.ivector_dim, ivector, online_ivectors, period)
    if batch_options is not None:  # runs wait, and the caller's next utterance may lie there
        frames = np.array(frames)
        ivectors = None if ivectors is None else np.array(ivectors)
    is_exact = batch_options is None or batch_options.ensure_exact_final_context
    cut = chunks if is_exact else full_chunks
    parts = list(cut(len(frames), options, network.left_context, network.right_context))
    if network.whole_only is not None and len(parts) > 1:
        raise RunError(
            f"{network.whole_only}: expected an utterance of one chunk, found {len(frames)} "
            f"frames in chunks of {options.frames_per_chunk} (see frames_per_chunk)"
        )
    num_rows = -(-len(frames) // options.frame_subsampling_factor)
    utterance = _Utterance(
        network=network,
        options=options,
        frames=frames,
        ivectors=ivectors,
        period=period,
        parts=parts,
        result=np.empty((num_rows, network.output_dim), dtype=np.float32),
    )
    check_memory(max(part.num_inputs for part in parts), network.input_dim)
    is_alone = network.pool.run_side_by_side(num_beside + len(parts))
    return Work(
        tasks=[partial(utterance.compute, part, is_alone=is_alone) for part in parts],
        finish=partial(utterance.scores, score_options),
        runs=() if batch_options is None else list(utterance.runs(batch_options)),
    )


def _ivectors(
    dim: int, ivector: npt.ArrayLike | None, online: npt.ArrayLike | None, period: int
) -> FloatArray | None:
    """The i-vectors as a matrix, if the network takes any."""
    if ivector is not None and online is not None:
        raise RunError("either one i-vector or online i-vectors can be given, not both")
    given = ivector if ivector is not None else online
    if given is None:
        if dim:
            raise RunError(f"node 'ivector' expects i-vectors of dimension {dim}, found none")
        return None
    if not dim:
        raise RunError("i-vectors were given, but the network has no input node 'ivector'")
    if online is not None and period <= 0:
        raise RunError(f"online i-vectors need a positive period (got {period})")
    if ivector is not None:
        given = np.atleast_2d(as_array(ivector, "node 'ivector'"))
        if len(given) != 1:
            raise RunError(
                f"node 'ivector': expected one i-vector, found shape {given.shape}; are they "
                "online_ivectors?"
            )
    return as_matrix(given, "ivector", "i-vectors", dim)


def pooling_node(nnet: Nnet) -> str | None:
    """The node that pools over a whole utterance, or None.

    Args:
        nnet: The network without nodes that no output needs.
    """
    for node in nnet.nodes:
        if not isinstance(node, ComponentNode):
            continue
        component = nnet.component(node.component)
        if component.type != "StatisticsPoolingComponent":
            continue
        from nnet3_descriptors.components import StatisticsPoolingComponent  # few networks need it

        if (
            isinstance(component, StatisticsPoolingComponent)
            and component.left_context + component.right_context >= _WHOLE_UTTERANCE
        ):
            return node.name
    return None
