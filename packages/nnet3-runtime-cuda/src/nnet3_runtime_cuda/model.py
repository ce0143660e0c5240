"""Model: a trained network that turns features into outputs, utterance by utterance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import AcousticModel, Nnet, read_model, set_test_mode
from nnet3_descriptors.editing import collapse_model
from nnet3_descriptors.files.source import PathOrFile
from nnet3_graph import ComputationRequest, IoSpecification, compute_context
from nnet3_optimizer import CachingCompiler

from .chunks import Chunk, ChunkOptions, chunks, online_ivector_row
from .computer import FloatArray, check_finite
from .computer_pool import ComputerPool
from .cuda.exchange import is_on_cuda
from .cuda.platform import Platform
from .device import DeviceNnet
from .errors import RunError
from .untrained import with_stand_in_statistics

R = TypeVar("R")
T = TypeVar("T")


def load(
    path_or_file: PathOrFile,
    device: str = "cpu",
    *,
    precision: str = "fp32",
    capacity: int = 64,
    threads: int | None = 1,
) -> Model:
    """Reads a Kaldi model for inference.

    Args:
        path_or_file: A .raw file, or a .mdl file (whose priors are then at hand), binary or text:
            a path, `path:offset`, or a file that is open for reading bytes.
        device: "cpu", "cuda" (the first one) or "cuda:<number>".
        precision: Of matrix products: "fp32", "tf32" (CUDA) or "bf16" (CUDA, AMX with MKL).
        capacity: How many compiled computations the model keeps ready to run.
        threads: How many threads compute; see `Model`.

    Raises:
        ModelFileError: the file cannot be read, or holds no nnet3 model.
        UnsupportedComponentError: the network holds a component type that cannot be computed.
        DeviceError: there is no such device, or what drives it is missing.
        RunError: the network has no node 'input' or no node 'output'.
    """
    model = read_model(path_or_file)
    if isinstance(model, AcousticModel):
        nnet, priors = model.nnet, model.priors if model.priors.size else None
    else:
        nnet, priors = model, None
    return Model(
        nnet,
        priors=priors,
        device=device,
        precision=precision,
        capacity=capacity,
        threads=threads,
    )


class Model:
    """A network for inference: batch-norm and dropout in test mode, computations remembered.

    The network must have an input 'input' and an output 'output', and may have an input 'ivector'.
    A model may be used by several threads at once.

    Attributes:
        nnet: The network in test mode.
        untrained: The batch-norm components that had no statistics. They were given the arbitrary
            ones that Kaldi's tools give them, so the outputs mean nothing beyond the comparison.
        left_context: Frames that the network needs before an output frame.
        right_context: Frames that it needs behind one.
        priors: (output_dim,) prior of each output, if the model file had them, or None.
    """

    def __init__(
        self,
        nnet: Nnet,
        *,
        priors: npt.ArrayLike | None = None,
        device: str | Platform = "cpu",
        precision: str = "fp32",
        capacity: int = 64,
        threads: int | None = 1,
    ) -> None:
        """Makes a network ready to run.

        Args:
            nnet: The network.
            priors: (output_dim,) prior of each output.
            device: "cpu", "cuda" (the first one) or "cuda:<number>".
            precision: Of matrix products: "fp32", "tf32" (CUDA) or "bf16" (CUDA, AMX with MKL).
            capacity: So many computations, one for each shape of chunk, are kept ready to run;
                those that were not used for longest go first.
            threads: How many threads compute; None for as many as the BLAS library uses, but at
                most 4. An utterance of as many chunks has them computed side by side, each on one
                thread, with the results of one thread; of fewer chunks, the products have all
                threads. One thread is best on busy processors, and where the caller has several
                that compute side by side.

        Raises:
            RunError: the network has no node 'input' or 'output', or there is not one prior for
                each output, or the number of threads is not positive.
            UnsupportedComponentError: the network holds a type that cannot be computed.
            DeviceError: there is no such device, or what drives it is missing.
        """
        if threads is not None and threads < 1:
            raise RunError(f"the number of threads must be positive, or None (got {threads})")
        inputs = {node.name: node.dim for node in nnet.input_nodes}
        outputs = {node.name for node in nnet.output_nodes}
        for name, names in (("input", set(inputs)), ("output", outputs)):
            if name not in names:
                raise RunError(f"the network has no {name} node '{name}'; it has {sorted(names)}")
        nnet, self.untrained = with_stand_in_statistics(nnet)
        self.nnet = set_test_mode(nnet)
        self.input_dim = inputs["input"]
        self.ivector_dim = inputs.get("ivector", 0)
        self.output_dim = nnet.node_dim("output")
        self.priors = None if priors is None else _vector(priors, "priors", self.output_dim)
        self.left_context, self.right_context = compute_context(self.nnet)
        collapsed = collapse_model(self.nnet)
        self._device_nnet = DeviceNnet(
            collapsed, device=device, precision=precision, threads=threads
        )
        compiler = CachingCompiler(collapsed, capacity=capacity)
        self._pool = ComputerPool(
            self._device_nnet, compiler.compile, capacity=capacity, threads=threads
        )

    @property
    def compile_seconds(self) -> float:
        """Time spent so far on compiling computations and binding them to memory."""
        return self._pool.compile_seconds

    def compute(
        self,
        features: npt.ArrayLike,
        ivector: npt.ArrayLike | None = None,
        *,
        online_ivectors: npt.ArrayLike | None = None,
        online_ivector_period: int = 0,
        frames_per_chunk: int = 50,
        frame_subsampling_factor: int = 1,
        extra_left_context: int = 0,
        extra_right_context: int = 0,
        extra_left_context_initial: int = -1,
        extra_right_context_final: int = -1,
        use_priors: bool = False,
        acoustic_scale: float = 1.0,
        apply_exp: bool = False,
    ) -> FloatArray:
        """Runs the network over an utterance, in chunks, exactly as Kaldi's nnet3-compute.

        The result is what the output node gives: log-posteriors if the network ends in a
        log-softmax; for 'chain' models scores that are neither normalised nor divided by priors.

        Args:
            features: (frames, input_dim).
            ivector: (ivector_dim,), one i-vector for the utterance, for networks that take one.
            online_ivectors: (rows, ivector_dim), i-vectors estimated as the utterance went on.
            online_ivector_period: Frames between two rows of online_ivectors.
            frames_per_chunk: Frames that are computed at a time; rounded up to a multiple of
                frame_subsampling_factor and the modulus of the network.
            frame_subsampling_factor: One row of output for this many frames.
            extra_left_context: Frames of context beyond what the network needs.
            extra_right_context: The same to the right.
            extra_left_context_initial: Replaces extra_left_context at the start, unless negative.
            extra_right_context_final: Replaces extra_right_context at the end, unless negative.
            use_priors: Whether the logarithm of the priors is subtracted.
            acoustic_scale: Multiplies the result.
            apply_exp: Whether the exponential of the result is returned.

        Returns:
            (frames / frame_subsampling_factor, rounded up, output_dim) float32.

        Raises:
            RunError: features or i-vectors are missing, empty, of another dimension, or not finite.
        """
        options = ChunkOptions(
            frames_per_chunk=frames_per_chunk,
            frame_subsampling_factor=frame_subsampling_factor,
            extra_left_context=extra_left_context,
            extra_right_context=extra_right_context,
            extra_left_context_initial=extra_left_context_initial,
            extra_right_context_final=extra_right_context_final,
            online_ivector_period=online_ivector_period,
        ).rounded(self.nnet.modulus)
        frames = _matrix(features, "input", "features", self.input_dim)
        ivectors = self._ivectors(ivector, online_ivectors, online_ivector_period)
        log_priors = self._log_priors() if use_priors else None
        rows = -(-len(frames) // frame_subsampling_factor)
        result = np.empty((rows, self.output_dim), dtype=np.float32)

        def run(chunk: Chunk, is_alone: bool) -> None:
            first = chunk.first_output // frame_subsampling_factor
            inputs = self._inputs(chunk, options, frames, ivectors)
            request = self._request(chunk, frame_subsampling_factor)
            outputs = self._pool.forward(request, inputs, is_alone=is_alone)
            result[first : first + chunk.num_outputs] = outputs["output"]

        self._for_each(
            run, list(chunks(len(frames), options, self.left_context, self.right_context))
        )
        if log_priors is not None:
            result -= log_priors
        if acoustic_scale != 1.0:
            result *= np.float32(acoustic_scale)
        return np.exp(result, out=result) if apply_exp else result

    def xvector(
        self,
        features: npt.ArrayLike,
        *,
        chunk_size: int = -1,
        min_chunk_size: int = 100,
        pad_input: bool = True,
    ) -> FloatArray:
        """The output for a whole utterance, or the mean over its chunks, as nnet3-xvector-compute.

        Args:
            features: (frames, input_dim).
            chunk_size: Frames of a chunk; -1 for the whole utterance. The mean is weighted by the
                frames of the chunks.
            min_chunk_size: Shorter utterances, and shorter last chunks, are padded to this.
            pad_input: Whether they are padded, by repeating the first and last frame; else short
                chunks are left out, and short utterances are an error.

        Returns:
            (output_dim,) float32.

        Raises:
            RunError: see `compute`; or the utterance is too short.
        """
        frames = _matrix(features, "input", "features", self.input_dim)
        total = len(frames)
        if not pad_input and total < min_chunk_size:
            raise RunError(
                f"the utterance has {total} frames, fewer than the least of {min_chunk_size}"
            )
        if chunk_size == 0 or min_chunk_size < 1:
            raise RunError(
                f"sizes of chunks must not be 0 (got chunk_size {chunk_size}, "
                f"min_chunk_size {min_chunk_size})"
            )
        size = total if chunk_size < 0 else min(chunk_size, total)
        if not pad_input and size < min_chunk_size:
            raise RunError(
                f"chunks of {size} frames are shorter than the least of {min_chunk_size}"
            )
        parts = [frames[start : start + size] for start in range(0, total, size)]
        parts = [part for part in parts if pad_input or len(part) >= min_chunk_size]
        padded = [_padded(part, min_chunk_size) for part in parts]
        mean = np.zeros(self.output_dim, dtype=np.float64)
        for part, vector in zip(parts, self._for_each(self._run_segment, padded), strict=True):
            mean += len(part) * vector
        return (mean / sum(map(len, parts))).astype(np.float32)

    # ---- one run ----

    def _for_each(self, run: Callable[[T, bool], R], chunks: Sequence[T]) -> list[R]:
        """What `run` returns for each chunk: side by side if each thread has one at least.

        Args:
            run: Called with a chunk, and whether it is alone on one thread.
            chunks: They do not depend on one another.
        """
        workers = self._device_nnet.machine.workers
        if workers is None or len(chunks) < workers.threads:
            return [run(chunk, False) for chunk in chunks]
        return workers.side_by_side([partial(run, chunk, True) for chunk in chunks])

    def _inputs(
        self,
        chunk: Chunk,
        options: ChunkOptions,
        frames: FloatArray,
        ivectors: FloatArray | None,
    ) -> dict[str, FloatArray]:
        """What a chunk is computed from."""
        inputs = {"input": frames[chunk.input_rows(len(frames))]}
        if ivectors is not None:
            row = 0
            if options.online_ivector_period > 0:
                row = online_ivector_row(chunk, options.online_ivector_period, len(ivectors))
            inputs["ivector"] = ivectors[row : row + 1]
        return inputs

    def _run_segment(self, frames: FloatArray, is_alone: bool) -> FloatArray:
        """The single output, at t = 0, for an input of all frames: (output_dim,)."""
        request = ComputationRequest(
            inputs=(IoSpecification.from_range("input", 0, len(frames)),),
            outputs=(IoSpecification.from_range("output", 0, 1),),
        )
        outputs = self._pool.forward(request, {"input": frames}, is_alone=is_alone)
        vector: FloatArray = outputs["output"][0]
        return vector

    def _request(self, chunk: Chunk, step: int) -> ComputationRequest:
        """The request of a chunk, moved in time so that its first output is at t = 0."""
        start = chunk.first_input - chunk.first_output
        inputs = [IoSpecification.from_range("input", start, start + chunk.num_inputs)]
        if self.ivector_dim:
            inputs.append(IoSpecification.from_range("ivector", 0, 1))
        end = (chunk.num_outputs - 1) * step + 1
        output = IoSpecification.from_range("output", 0, end, t_step=step)
        return ComputationRequest(inputs=tuple(inputs), outputs=(output,))

    # ---- checks ----

    def _log_priors(self) -> FloatArray:
        if self.priors is None:
            raise RunError("the model has no priors; a .mdl file with priors is needed")
        return np.log(self.priors)

    def _ivectors(
        self, ivector: npt.ArrayLike | None, online: npt.ArrayLike | None, period: int
    ) -> FloatArray | None:
        """The i-vectors as a matrix, if the network takes any."""
        if ivector is not None and online is not None:
            raise RunError("either one i-vector or online i-vectors can be given, not both")
        given = ivector if ivector is not None else online
        if given is None:
            if self.ivector_dim:
                raise RunError(
                    f"node 'ivector' expects i-vectors of dimension {self.ivector_dim}, found none"
                )
            return None
        if not self.ivector_dim:
            raise RunError("i-vectors were given, but the network has no input node 'ivector'")
        if online is not None and period <= 0:
            raise RunError(f"online i-vectors need a positive period (got {period})")
        matrix = np.atleast_2d(np.asarray(given)) if online is None else given
        return _matrix(matrix, "ivector", "i-vectors", self.ivector_dim)


def _matrix(values: npt.ArrayLike, node: str, what: str, dim: int) -> FloatArray:
    """The values as a float32 matrix.

    Raises:
        RunError: they are no matrix of that many columns, are empty, not finite, or on a device.
    """
    if is_on_cuda(values):
        raise RunError(
            f"{what} for node '{node}': expected an array in the memory of the processor, found "
            "one on a device (NnetComputer takes those)"
        )
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise RunError(f"{what} for node '{node}': expected numbers, found {array.dtype}")
    if array.ndim != 2:
        raise RunError(
            f"{what} for node '{node}': expected a matrix (rows, {dim}), found shape {array.shape}"
        )
    if len(array) == 0:
        raise RunError(f"{what} for node '{node}': expected at least 1 row, found 0")
    if array.shape[1] != dim:
        raise RunError(
            f"{what} for node '{node}': expected dimension {dim}, found {array.shape[1]}"
        )
    matrix = np.ascontiguousarray(array, dtype=np.float32)
    check_finite(matrix, f"{what} for node '{node}'")
    return matrix


def _vector(values: npt.ArrayLike, what: str, dim: int) -> FloatArray:
    """The values as a float32 vector.

    Raises:
        RunError: they are no vector of that dimension.
    """
    vector = np.asarray(values, dtype=np.float32)
    if vector.shape != (dim,):
        raise RunError(f"{what}: expected a vector of dimension {dim}, found {vector.shape}")
    return vector


def _padded(frames: FloatArray, size: int) -> FloatArray:
    """Frames with the first and the last repeated, half of the missing ones at each end."""
    missing = max(0, size - len(frames))
    left = missing // 2
    return np.pad(frames, ((left, missing - left), (0, 0)), mode="edge")
