"""What the chunks of an utterance give: each alone on nnet3-runtime-reference, in float64.

The utterance is cut here once more, without a line of the code that is judged. A chunk is compiled
alone, for the times that are asked for, and runs as it was compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import attrs
import numpy as np
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_descriptors import Nnet
from nnet3_descriptors.editing import remove_orphans
from nnet3_graph import NotComputableError, UnboundedComputationError, compute_context
from nnet3_runtime_reference import ReferenceComputer

NOT_COMPUTABLE = NotComputableError, UnboundedComputationError
"""Errors of requests that a network has no outputs for."""

FAR = 36_000
"""Frames to a time at which no row of a chunk is met; a multiple of the modulus of any network."""


@attrs.frozen(kw_only=True)
class Utterance:
    """An utterance, with its i-vectors.

    Attributes:
        frames: (frames, DIM).
        ivector: (ivector dim,) for the whole utterance, or None.
        online: (rows, ivector dim) as the utterance went on, or None.
    """

    frames: np.ndarray
    ivector: np.ndarray | None
    online: np.ndarray | None


@attrs.frozen(kw_only=True, eq=False)
class DefinedChunk:
    """A chunk of an utterance.

    Attributes:
        rows: (rows,) the frames of its outputs.
        used: The outputs that the chunk contributes to the utterance.
        left: Extra context.
        right: The same after the outputs.
        middle: The frame whose online i-vector it takes.
    """

    rows: np.ndarray
    used: slice
    left: int
    right: int
    middle: int


@attrs.frozen(kw_only=True, eq=False)
class ChunkDefinition:
    """The chunks of utterances by their definition.

    Attributes:
        nnet: The network, in test mode.
        options: Keyword arguments of `Model.compute`.
        begins_at_zero: Whether the first output of each chunk has the time 0, as in nnet3-compute.
            It matters if the network reads fixed times, or an i-vector at its own; else each
            output keeps its time, which tells that nothing depends on it.
    """

    nnet: Nnet
    options: dict[str, float]
    begins_at_zero: bool
    _compiled: dict[ComputationRequest, NnetComputation] = attrs.field(factory=dict, init=False)

    @property
    def step(self) -> int:
        """Frames between two rows of output."""
        return int(self.options["frame_subsampling_factor"])

    @cached_property
    def context(self) -> tuple[int, int]:
        """Frames that the network needs before and after an output."""
        return compute_context(self.nnet)

    @cached_property
    def rows_of_chunk(self) -> int:
        """Rows of output of a chunk.

        It begins where the pattern of reading of the nodes that are needed repeats, and at an
        output.
        """
        unit = int(np.lcm(self.step, remove_orphans(self.nnet).modulus))
        return -(-int(self.options["frames_per_chunk"]) // unit) * unit // self.step

    def chunks(self, utterance: Utterance, *, is_exact: bool = True) -> Iterator[DefinedChunk]:
        """The chunks of an utterance, in order.

        Args:
            utterance: The utterance.
            is_exact: Whether the last chunk ends with the utterance. If not, all are of one length,
                as in Kaldi's nnet3-compute-batch: the last one begins earlier, or reaches beyond
                the end, and the chunks take the frames up to their next output, too.
        """
        given, count = self.options, self.rows_of_chunk
        num_rows = -(-len(utterance.frames) // self.step)
        for begin in range(0, num_rows, count):
            end = min(begin + count, num_rows)
            first = begin if is_exact else max(0, end - count)
            rows = np.arange(first, end if is_exact else first + count) * self.step
            left, right = int(given["extra_left_context"]), int(given["extra_right_context"])
            if first == 0 and given["extra_left_context_initial"] >= 0:
                left = int(given["extra_left_context_initial"])
            if end == num_rows and given["extra_right_context_final"] >= 0:
                right = int(given["extra_right_context_final"])
            middle = (int(rows[0]) + int(rows[-1])) // 2
            yield DefinedChunk(
                rows=rows,
                used=slice(begin - first, end - first),
                left=left,
                right=right if is_exact else right + self.step - 1,
                middle=middle if is_exact else int(rows[count // 2]),
            )

    def outputs(self, utterance: Utterance, *, is_exact: bool = True) -> np.ndarray:
        """The outputs of an utterance, (rows, columns), chunk by chunk.

        Raises:
            NOT_COMPUTABLE: The network has no outputs for a chunk.
        """
        outputs = []
        for chunk in self.chunks(utterance, is_exact=is_exact):
            begins_at_zero = self.begins_at_zero or not is_exact
            zero = int(chunk.rows[0]) if begins_at_zero else 0
            outputs.append(self._outputs_of(utterance, chunk, zero)[chunk.used])
        return np.concatenate(outputs)

    def scores(self, outputs: np.ndarray, priors: np.ndarray) -> np.ndarray:
        """What the options make of outputs."""
        if self.options["use_priors"]:
            outputs = outputs - np.log(priors)
        scores = outputs * self.options["acoustic_scale"]
        if "apply_exp" in self.options:
            with np.errstate(over="ignore"):
                scores = np.exp(scores)
        return scores

    def depends_on_time(self, utterance: Utterance) -> bool:
        """Whether a chunk, with its i-vector, gives other outputs at other times."""
        for chunk in self.chunks(utterance):
            first = int(chunk.rows[0])
            near = self._outputs_of(utterance, chunk, first)
            try:
                far = self._outputs_of(utterance, chunk, first - FAR)
            except NOT_COMPUTABLE:
                return True
            if not np.allclose(near, far, rtol=0, atol=1e-9 * max(1.0, np.abs(near).max())):
                return True
        return False

    def whole(self, utterance: Utterance) -> np.ndarray | None:
        """The outputs of an utterance as one chunk, for networks that see so many frames.

        Returns:
            (rows, columns), or None if the context is not enough for all of them.
        """
        rows = np.arange(0, len(utterance.frames), self.step)
        chunk = DefinedChunk(rows=rows, used=slice(None), left=0, right=0, middle=0)
        try:
            return self._outputs_of(utterance, chunk, 0)
        except NOT_COMPUTABLE:
            return None

    def _outputs_of(self, utterance: Utterance, chunk: DefinedChunk, zero: int) -> np.ndarray:
        """The outputs of a chunk, (rows, columns), from the frames around; the edges repeat.

        Args:
            utterance: The utterance.
            chunk: The chunk.
            zero: The frame at t = 0. The i-vector is at t = 0, and if the first output is far, also
                at its time.
        """
        before, after = self.context
        begin, end = int(chunk.rows[0]), int(chunk.rows[-1]) + 1
        first, last = begin - before - chunk.left, end + after + chunk.right
        times = np.arange(first, last).clip(0, len(utterance.frames) - 1)
        inputs = {"input": utterance.frames[times]}
        requested = [IoSpecification.from_range("input", first - zero, last - zero)]
        row = utterance.ivector
        if utterance.online is not None:
            number = chunk.middle // int(self.options["online_ivector_period"])
            row = utterance.online[min(number, len(utterance.online) - 1)]
        if row is not None:
            times_of_ivector = [0, FAR] if begin - zero == FAR else [0]
            indexes = np.array([(0, time, 0) for time in times_of_ivector], np.int32)
            requested.append(IoSpecification(name="ivector", indexes=indexes))
            inputs["ivector"] = np.stack([row] * len(indexes))
        wanted = IoSpecification.from_range("output", begin - zero, end - zero, t_step=self.step)
        request = ComputationRequest(inputs=requested, outputs=[wanted])
        if request not in self._compiled:
            self._compiled[request] = compile_computation(self.nnet, request)
        return ReferenceComputer(self.nnet, self._compiled[request]).forward(inputs)["output"]
