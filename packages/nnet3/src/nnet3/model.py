"""Model: a trained network that turns features into outputs, utterance by utterance."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import AcousticModel, Nnet, Nnet3Error, read_model, set_test_mode
from nnet3_descriptors.editing import for_inference, remove_orphan_nodes
from nnet3_descriptors.files import PathOrFile, read_vector
from nnet3_descriptors.forking import GATE
from nnet3_descriptors.values import NotCopied, frozen
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray, as_array, as_vector, check_float32
from nnet3_runtime_cuda.device import DeviceNnet, check_number_of_threads

from nnet3 import batches
from nnet3.audio import (
    AudioStream,
    features_of,
    is_recording,
    labels_of,
    nnet_of,
    pipeline_of,
    read_folder,
)
from nnet3.caching import CachingCompiler
from nnet3.chunk_work import ChunkNetwork, chunk_work, pooling_node
from nnet3.chunks import ChunkOptions, options_of
from nnet3.computer_pool import ComputerPool
from nnet3.errors import warn
from nnet3.known_results import KnownResults
from nnet3.many_utterances import check_table, for_each, is_batch, pairs_of, utterances_of, value_of
from nnet3.networks import (
    OUTPUT,
    check_name,
    only_output,
    with_output,
    with_stand_in_statistics,
)
from nnet3.output_scores import ScoreOptions
from nnet3.utterance_segments import EvenSegmentOptions, SegmentOptions, segment_work

if TYPE_CHECKING:
    from nnet3_descriptors.model_files import TransitionModel
    from nnet3_runtime_cuda.cpu import Task
    from nnet3_runtime_cuda.cuda import Platform
    from nnet3_runtime_cuda.tracing import Tracer
    from nnet3_speech import FeaturePipeline, Features, ModelFolder, Speaker
    from nnet3_speech.hmm import PdfLabels

    from nnet3.audio import Phones, Recording
    from nnet3.chunks import ComputeKeywords
    from nnet3.streams import Stream, StreamOptions, StreamProgram
    from nnet3.streams.program import StreamKeywords

_MOST_STREAM_PROGRAMS = 8
"""The most programs of streams that are kept for further ones; each stream holds its own."""

Cut = TypeVar("Cut", bound=attrs.AttrsInstance)
"""Options for cutting utterances or streams."""


def load(
    source: PathOrFile | bytes | bytearray | memoryview | Nnet | AcousticModel,
    device: str = "cpu",
    *,
    output: str = OUTPUT,
    phones: Phones | None = None,
    precision: str = "fp32",
    capacity: int = 64,
    threads: int | None = 1,
    trace: Tracer | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Model:
    """Reads a Kaldi model for inference.

    Args:
        source: A .raw file, or a .mdl file (with its priors), binary or text: a path,
            `path:offset`, a file that is open for reading bytes, or its bytes. Or the result of
            `read_nnet` or `read_model`. Or the folder of a speech model, as `ModelFolder` of
            nnet3-speech describes it: its options say what the model makes of recordings.
        device: "cpu", "cuda" (the first one) or "cuda:<number>".
        output: The node whose values are the outputs; see `Model`.
        phones: The names of phones for `Model.labels`; see `Model`.
        precision: Precision of matrix products: "fp32", "tf32" (CUDA) or "bf16" (CUDA, AMX with
            MKL).
        capacity: Number of compiled computations that stay ready to run.
        threads: Number of computing threads; see `Model`.
        trace: Receives what each command reads and writes, on the processor; see `Tracer`.
        cache_dir: The folder with computations of earlier processes; see `Model`.

    Raises:
        ModelFileError: the file cannot be read, or holds no nnet3 model.
        SpeechError: the folder has no network, or options that cannot be read.
        RunError: see `Model`, as for the errors below; or nnet3-speech is not installed.
        ContextError: the network has other inputs than 'input' and 'ivector', or no context.
        OptionError: the capacity is not a positive integer, or the folder of the cache no path.
        DeviceError: there is no such device or precision, or what drives it is missing.
    """
    folder = None
    if isinstance(source, Nnet | AcousticModel):
        model = source
    elif isinstance(source, str | os.PathLike) and os.path.isdir(source):
        folder = read_folder(source)
        model = nnet_of(folder)
    else:
        if isinstance(source, bytes | bytearray | memoryview):
            source = io.BytesIO(bytes(source))
        model = read_model(source, in_place=True)
    priors = transition_model = None
    if isinstance(model, AcousticModel):
        transition_model = model.transition_model
        priors = model.priors if model.priors.size else None
    return Model(
        model.nnet if isinstance(model, AcousticModel) else model,
        priors=priors,
        output=output,
        device=device,
        precision=precision,
        capacity=capacity,
        threads=threads,
        trace=trace,
        transition_model=transition_model,
        phones=phones,
        folder=folder,
        cache_dir=cache_dir,
    )


class Model(NotCopied):
    """A network for inference: batch-norm and dropout in test mode, computations remembered.

    The network must have an input 'input', and may have an input 'ivector'. A model may be used by
    several threads at once.

    Attributes:
        output: The name of the node whose values are the outputs.
        pooling: The node that pools over whole utterances, so that `xvector` gives the output and
            `compute` refuses long utterances; None for other networks.
        input_dim: Columns of the features.
        ivector_dim: Dimension of the i-vectors; 0 if the network takes none.
        output_dim: Columns of the outputs.
        untrained: The batch-norm components without statistics. They have the arbitrary statistics
            that Kaldi's tools give them, so the outputs are good only for comparing with Kaldi.
        left_context: Frames that the network needs before an output frame.
        right_context: Frames that the network needs after an output frame.
        modulus: Chunks whose starts differ by a multiple of it need the same computation. As in
            Kaldi's tools, nodes that no output needs do not count.
        priors: (output_dim,) prior of each output, read-only, if the model has them for this
            output, or None.
        folder: The folder that the model was loaded from, or None.
    """

    _instead = "load it in each process"

    def __init__(
        self,
        nnet: Nnet,
        *,
        priors: npt.ArrayLike | None = None,
        output: str = OUTPUT,
        device: str | Platform = "cpu",
        precision: str = "fp32",
        capacity: int = 64,
        threads: int | None = 1,
        trace: Tracer | None = None,
        transition_model: TransitionModel | None = None,
        phones: Phones | None = None,
        folder: ModelFolder | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Makes a network ready to run; warns if it has never been trained (see `untrained`).

        Args:
            nnet: The network.
            priors: Of the columns of 'output', or of another output node; they are copied. They
                serve every output node with so many columns.
            output: The node whose values are the outputs: an output node such as 'output-xent', or
                any other, such as a bottleneck layer.
            device: "cpu", "cuda" (the first one) or "cuda:<number>".
            precision: Precision of matrix products: "fp32", "tf32" (CUDA) or "bf16" (CUDA, AMX with
                MKL).
            capacity: Number of computations, one for each shape of chunk, that stay ready to run,
                within 512 MiB, or within the memory that `compute_many` leaves for them; the least
                recently used ones are dropped first.
            threads: Number of computing threads, at most 256; None for as many as the BLAS library
                uses, but at most 4. If an utterance has at least as many chunks, the threads
                compute chunks side by side, with the results of one thread; otherwise all threads
                share each product. One thread is best on busy processors, and if the caller
                computes on several threads.
            trace: Receives what each command reads and writes, on the processor; see `Tracer`.
            transition_model: Says the phones of the outputs, for `labels`.
            phones: The names of phones for `labels`: the path of a phones.txt, or a mapping from
                their numbers; None for those of the folder, if it has any, or else for numbers.
            folder: The folder of the model: its options turn recordings into features, and say the
                defaults of frame_subsampling_factor and acoustic_scale.
            cache_dir: The folder with computations of earlier processes, "" for none; None for what
                the environment variable NNET3_CACHE_DIR says, or else a folder among the caches of
                the user. Where it cannot be written, nothing is kept.

        Raises:
            RunError: this is no network; it has no node 'input', or not that of the output; the
                number of priors is not that of outputs; the number of threads is not an integer
                from 1 to 256; an environment variable that chooses how products are computed has an
                unknown value; or `trace` is not a `Tracer`, or the model is on a device.
            ContextError: the network has other inputs than 'input' and 'ivector', or no context.
            OptionError: the capacity is not a positive integer, or the folder of the cache no path.
            DeviceError: there is no such device or precision, or what drives it is missing.
        """
        check_number_of_threads(threads, RunError)
        if not isinstance(nnet, Nnet):
            raise RunError(
                f"expected a network (Nnet), found {type(nnet).__name__}: nnet3.load reads models"
            )
        inputs = {node.name: node.dim for node in nnet.input_nodes}
        if "input" not in inputs:
            raise RunError(f"the network has no input node 'input'; it has {sorted(inputs)}")
        outputs = {node.name: nnet.node_dim(node.name) for node in nnet.output_nodes}
        if output == OUTPUT and OUTPUT not in outputs:
            raise RunError(
                f"the network has no output node '{OUTPUT}'; it has {sorted(outputs)}; "
                "output=... chooses one"
            )
        check_name(output)
        nnet, self.untrained = with_stand_in_statistics(nnet)
        self._whole = set_test_mode(nnet)
        chosen = self._whole if output == OUTPUT else with_output(self._whole, output)
        self._nnet = chosen
        if self.untrained:
            warn(
                f"the network is not trained: batch-norm component '{self.untrained[0]}' has no "
                f"statistics ({len(self.untrained)} such components); arbitrary ones are used"
            )
        self.output = output
        self.input_dim = inputs["input"]
        self.ivector_dim = inputs.get("ivector", 0)
        self.output_dim = chosen.node_dim(OUTPUT)
        self.priors = None
        if priors is not None:
            values = as_array(priors, "priors")
            dims = [outputs.get(OUTPUT, self.output_dim)]
            dims += [] if output == OUTPUT else outputs.values()
            dim = values.size if values.size in dims else dims[0]
            priors = frozen(np.array(as_vector(values, "priors", dim)))  # a copy
            self.priors = priors if outputs.get(output) == dim else None
        collapsed = for_inference(only_output(chosen))
        self.pooling = pooling_node(collapsed)
        compiler = CachingCompiler(collapsed, capacity=capacity, cache_dir=cache_dir)
        self.left_context, self.right_context = KnownResults(chosen, cache_dir).context
        self.modulus = remove_orphan_nodes(self._whole).modulus  # of all outputs
        self._device_nnet = DeviceNnet(
            collapsed, device=device, precision=precision, threads=threads
        )
        if trace is not None:
            self._device_nnet.check_traceable(trace)
        self._trace = trace
        self.folder = folder
        self._transition_model, self._phones = transition_model, phones
        self._making_pipeline = threading.Lock()
        self._pipeline: FeaturePipeline | None = None
        self._pool = ComputerPool(
            self._device_nnet, compiler.compile, capacity=capacity, trace=trace
        )
        self._chunk_network = ChunkNetwork(
            nnet=chosen,
            modulus=self.modulus,
            input_dim=self.input_dim,
            ivector_dim=self.ivector_dim,
            output_dim=self.output_dim,
            left_context=self.left_context,
            right_context=self.right_context,
            priors=self.priors,
            output=output,
            whole_only=self._whole_only(compiler.known),
            pool=self._pool,
            known=compiler.known,
            frame_products=self.input_dim
            + sum(array.size for each in chosen.components for array in each.arrays().values()),
        )
        self._making_streams = threading.Lock()
        self._stream_programs: dict[StreamOptions, StreamProgram] = {}  # the latest is last
        self._stream_seconds = 0.0
        self._making_others = threading.Lock()
        self._others: dict[str, Model] = {}
        self._settings: dict[str, Any] = {
            "priors": priors,
            "device": device,
            "precision": precision,
            "capacity": capacity,
            "threads": threads,
            "trace": trace,
            "cache_dir": cache_dir,
        }

    def __str__(self) -> str:
        """The network, and what its folder has."""
        return repr(self) if self.folder is None else f"{self!r}\n{self.folder}"

    def __repr__(self) -> str:
        ivector = f" + i-vector {self.ivector_dim}" if self.ivector_dim else ""
        return (
            f"<Model: {self.input_dim}{ivector} -> {self.output_dim} columns, "
            f"context {self.left_context} + {self.right_context} frames>"
        )

    @property
    def nnet(self) -> Nnet:
        """The network in test mode; its output is 'output', whichever node that is.

        Large parameters of a binary file that was loaded are views of it, not aligned in memory.
        Another file may have replaced it, but it must not have been overwritten.
        """
        return self._nnet

    def _whole_only(self, known: KnownResults) -> str | None:
        """Why an utterance cannot be cut into chunks, or None."""
        if self.pooling is not None:
            return (
                f"node '{self.pooling}' pools over a whole utterance, for which xvector gives one "
                "vector"
            )
        return known.fixed_frame

    def _of_output(self, output: str | None) -> Model:
        """This model, or one with the values of another node as its outputs.

        It is made at its first use, and shares the arrays of the parameters that are not changed
        for the device.

        Raises:
            RunError: there is no such node, or this is no name.
        """
        if output is None or check_name(output) == self.output:
            return self
        with GATE.importing(), self._making_others:
            found = self._others.get(output)
            if found is None:
                found = Model(self._whole, output=output, **self._settings)
                self._others[output] = found
            return found

    def features(self, recording: Recording) -> Features:
        """What the network reads of a recording: features, and online i-vectors if it takes any.

        Args:
            recording: The path of a WAV file of one channel, or (samples, rate) with samples (n,)
                in the units of 16-bit integers, or what `read_wav` of nnet3-speech gives.

        Raises:
            RunError: the model has no folder; or the folder gives other dimensions than the network
                reads; or the recording has several channels, or samples that are no array.
            SpeechError: see `compute`.
        """
        return features_of(self.feature_pipeline(), recording)

    def feature_pipeline(self) -> FeaturePipeline:
        """What computes the features and i-vectors of recordings, made once.

        Raises:
            RunError: the model has no folder; or the folder gives other dimensions than the network
                reads.
            SpeechError: a file of the folder is missing, or cannot be used.
        """
        with GATE.importing(), self._making_pipeline:
            if self._pipeline is None:
                self._pipeline = pipeline_of(self.folder, self.input_dim, self.ivector_dim)
            return self._pipeline

    def _options(self, kind: type[Cut], keywords: Mapping[str, Any]) -> tuple[Cut, ScoreOptions]:
        """The options of a call, with what the folder says for those that are missing or None.

        Raises:
            TypeError: there is no such option.
            RunError: a value is out of range.
        """
        names = ("frame_subsampling_factor", "acoustic_scale")
        given = {
            name: value
            for name, value in keywords.items()
            if value is not None or name not in names
        }
        if self.folder is not None:
            given = {**{name: getattr(self.folder.options, name) for name in names}, **given}
        return options_of(kind, ScoreOptions, given)

    @property
    def labels(self) -> PdfLabels:
        """The phones and HMM states of the columns of outputs; they are made at the first use.

        The columns are pdfs. `labels[pdf]` has the states that share a pdf, and `labels.phones` the
        names of all phones.

        Raises:
            RunError: the model has no transition model, as a .raw file; or nnet3-speech is not
                installed.
            ModelFileError, FileError, SpeechError: a file of the folder, or of names, cannot be
                read; or it does not fit the transition model.
        """
        with GATE.importing():
            return self._labels

    @cached_property
    def _labels(self) -> PdfLabels:
        return labels_of(self._transition_model, self._phones, self.folder)

    def phone_posteriors(self, outputs: npt.ArrayLike) -> FloatArray:
        """The probability of each phone in each frame, by the softmax of the outputs.

        Of log-posteriors the softmax is their exponential. The scores of a 'chain' model become
        such probabilities, too, but its training normalises scores over whole sequences; its output
        'output-xent', where the file still has it, is trained frame by frame. Phones that share a
        pdf have equal parts of its probability, so that each row sums to 1, but for the part of
        pdfs that no phone has.

        Args:
            outputs: (frames, output_dim), what `compute` returns without priors, exponential, or a
                scale, with acoustic_scale=1.0 where a folder has another; axes in front are kept.

        Returns:
            (frames, phones) float32, a column for each name in `labels.phones`.

        Raises:
            RunError: the outputs are no array of finite numbers.
            HmmError: the outputs have not a column for each pdf.
            RunError, SpeechError, ...: see `labels`.
        """
        values = as_array(outputs, "outputs")
        if values.dtype.kind not in "fiu":
            raise RunError(f"outputs: expected numbers, found {values.dtype}")
        check_float32(values, "outputs")
        return self.labels.phone_posteriors(values.astype(np.float32))

    @property
    def compile_seconds(self) -> float:
        """Time spent so far on compiling computations and binding them to memory."""
        others = sum(other.compile_seconds for other in tuple(self._others.values()))
        return self._pool.compile_seconds + self._stream_seconds + others

    @overload
    def compute(
        self, features: list[npt.NDArray[Any]], *arguments: Any, **options: Any
    ) -> list[FloatArray]: ...

    @overload
    def compute(
        self,
        features: npt.ArrayLike | Recording,
        ivector: npt.ArrayLike | None = None,
        *,
        online_ivectors: npt.ArrayLike | None = None,
        output: str | None = None,
        **options: Unpack[ComputeKeywords],
    ) -> FloatArray: ...

    def compute(
        self,
        features: npt.ArrayLike | list[npt.NDArray[Any]] | Recording,
        ivector: npt.ArrayLike | None = None,
        *,
        online_ivectors: npt.ArrayLike | None = None,
        output: str | None = None,
        **options: Any,
    ) -> FloatArray | list[FloatArray]:
        """Runs the network over an utterance, in chunks, exactly as Kaldi's nnet3-compute.

        The result has the values of the output node: log-posteriors if the network ends in a
        log-softmax; for 'chain' models scores that are neither normalised nor divided by priors.

        Args:
            features: (frames, input_dim). For several utterances, (N, frames, input_dim) or a list
                of matrices, which may differ in length. NumPy arrays, nested sequences, or objects
                with `__dlpack__` in the memory of the processor. Or a recording, for a model that
                was loaded from its folder: the path of a WAV file of one channel, or (samples,
                rate) with samples (n,) in the units of 16-bit integers, or what `read_wav` of
                nnet3-speech gives; its i-vectors are computed, too.
            ivector: (ivector_dim,), one i-vector for the utterance, for networks that take one; for
                several utterances (N, ivector_dim), or a list of N.
            online_ivectors: (rows, ivector_dim), i-vectors estimated during the utterance; for
                several utterances (N, rows, ivector_dim), or a list of N.
            output: The node whose values are wanted: another output, such as 'output-xent', or any
                other node, such as a bottleneck layer. None for that of the model. The first use of
                a node prepares a network for it, with memory of its own.
            **options: The options below; `ChunkOptions` and `ScoreOptions` have their defaults.
            online_ivector_period: Frames between two rows of online_ivectors.
            frames_per_chunk: Frames that are computed at a time; rounded up to a multiple of
                frame_subsampling_factor and the modulus of the network.
            frame_subsampling_factor: One row of output for this many frames. None: what the folder
                of the model says, or 1.
            extra_left_context: Frames of context beyond what the network needs.
            extra_right_context: The same to the right.
            extra_left_context_initial: Replaces extra_left_context at the start, unless negative.
            extra_right_context_final: Replaces extra_right_context at the end, unless negative.
            scores: "raw" for the values of the output, "log-softmax" for the logarithm of their
                softmax: log-probabilities of the pdfs in each frame. Outputs of 'chain' models
                become such, though training normalises them over sequences, not frames.
            use_priors: Whether the logarithm of the priors is subtracted.
            acoustic_scale: Multiplies the result. None: what the folder of the model says, or 1.
            apply_exp: Whether the exponential of the result is returned.

        Returns:
            (frames / frame_subsampling_factor, rounded up, output_dim) float32; for a batch with N
            in front; for a list of utterances a list.

        Raises:
            RunError: features or i-vectors are missing, empty, masked, of another dimension, or not
                finite; the number of i-vectors is not that of utterances; online i-vectors end too
                soon; an option is out of range, or needs more memory than the machine has; priors
                are missing, or have no logarithm; there is no node of the name `output`; an
                utterance has several chunks, and the network reads frames at a fixed time
                (ReplaceIndex), which would be another one in each, or pools over whole utterances,
                as those of x-vectors do; or a value of the output, scaled or not, is not finite. Or
                a recording came with i-vectors, for a model without a folder, or with several
                channels.
            SpeechError: a recording cannot be read, or has another rate than the options of its
                features allow; or the folder lacks a file.
            UnsupportedComponentError: the network has a component of a type that is not
                implemented.
            NotComputableError, CompilationError: the network gives no output for these frames.
            DeviceMemoryError: the device lacks memory.
            TypeError: there is no such option.
        """
        model = self._of_output(output)
        chunk_options, score_options = self._options(ChunkOptions, options)
        utterances = None if is_recording(features) else utterances_of(features)
        if utterances is None:
            frames, online, chunk_options = self._resolved(
                features, ivector, online_ivectors, chunk_options
            )
            return model._do(
                model.compute_work(frames, ivector, online, chunk_options, score_options)
            )
        outputs = model._compute_each(
            utterances,
            for_each(ivector, len(utterances), "i-vectors"),
            for_each(online_ivectors, len(utterances), "online i-vectors"),
            chunk_options,
            score_options,
        )
        if not is_batch(features):
            return outputs
        if outputs:
            return np.stack(outputs)
        num_rows = -(
            -as_array(features, "features").shape[1] // chunk_options.frame_subsampling_factor
        )
        return np.empty((0, num_rows, model.output_dim), np.float32)

    def _resolved(
        self, features: Any, ivector: Any, online_ivectors: Any, options: ChunkOptions
    ) -> tuple[Any, Any, ChunkOptions]:
        """Features, online i-vectors and options, the first two of them computed for a recording.

        Raises:
            RunError, SpeechError: see `compute`.
        """
        if not is_recording(features):
            return features, online_ivectors, options
        if ivector is not None or online_ivectors is not None:
            raise RunError("the i-vectors of a recording are computed; expected none beside it")
        found = self.features(features)
        options = attrs.evolve(options, online_ivector_period=found.ivector_period)
        return found.features, found.online_ivectors, options

    def _compute_each(
        self,
        utterances: Sequence[Any],
        ivectors: Sequence[Any],
        online_ivectors: Sequence[Any],
        chunk_options: ChunkOptions,
        score_options: ScoreOptions,
    ) -> list[FloatArray]:
        """Computes utterances side by side; errors name the utterance."""
        works = []
        for number, (features, ivector, online) in enumerate(
            zip(utterances, ivectors, online_ivectors, strict=True)
        ):
            with _named(number):
                work = chunk_work(
                    self._chunk_network,
                    features,
                    ivector,
                    online,
                    chunk_options,
                    score_options,
                    num_beside=len(utterances) - 1,
                    batch_options=None,
                )
            works.append(work)
        self._run([task for work in works for task in work.tasks])
        outputs = []
        for number, work in enumerate(works):
            with _named(number):
                outputs.append(work.finish())
        return outputs

    def compute_many(
        self,
        items: Iterable[tuple[str, npt.ArrayLike | Recording]],
        *,
        ivectors: Mapping[str, npt.ArrayLike] | None = None,
        online_ivectors: Mapping[str, npt.ArrayLike] | None = None,
        threads: int = 1,
        memory: int = 512,
        minibatch_size: int = 8,
        output: str | None = None,
        **options: Unpack[ComputeKeywords],
    ) -> Iterator[tuple[str, FloatArray]]:
        """Runs the network over many utterances, equal chunks of several of them as one minibatch.

        Results come in the order of the utterances, before later ones are read. They equal those of
        `compute` up to rounding, and are the same for every number of threads.

        Args:
            items: The key and the features of each utterance, as `read_table` gives them, or a
                recording of it; see `compute`.
            ivectors: The i-vector of each utterance, by key, for networks that take one.
            online_ivectors: The i-vectors estimated during each utterance, by key.
            threads: Number of threads that compute minibatches side by side.
            memory: Mebibytes: a quarter for the features and outputs of waiting utterances, the
                rest for running and idle computers, with an eighth of the whole for the minibatch
                of each thread. The network and compiled computations are not counted.
            minibatch_size: Largest number of chunks computed together.
            output: See `compute`.
            **options: See `compute`.

        Returns:
            An iterator of the key and the (rows, output_dim) float32 of each utterance.

        Raises:
            RunError: see `compute`, also for other errors; it names the utterance. Results of
                earlier utterances come before it.
        """
        model = self._of_output(output)
        check_number_of_threads(threads, RunError)
        chunk_options, score_options = self._options(ChunkOptions, options)
        score_options.check(model.priors)
        batch_options = batches.BatchOptions(memory=memory, minibatch_size=minibatch_size)
        check_table(ivectors, "ivectors")
        check_table(online_ivectors, "online_ivectors")

        def work(key: str, features: npt.ArrayLike | Recording) -> tuple[int, batches.Work]:
            ivector = value_of(ivectors, key, "i-vector")
            online = value_of(online_ivectors, key, "online i-vectors")
            frames, online, options = self._resolved(features, ivector, online, chunk_options)
            todo = model.compute_work(
                frames, ivector, online, options, score_options, batch_options
            )
            return len(as_array(frames, "features")), todo

        step = chunk_options.frame_subsampling_factor
        return model._in_order(items, work, threads, step, batch_options)

    def _in_order(
        self,
        items: Iterable[tuple[str, Any]],
        work: Callable[[str, Any], tuple[int, batches.Work]],
        threads: int,
        step: int,
        options: batches.BatchOptions,
    ) -> Iterator[tuple[str, FloatArray]]:
        """The results of many utterances, in their order."""
        with self.utterance_queue(threads, step, options) as queue:

            def oldest() -> tuple[str, FloatArray]:
                key = queue.oldest.key
                try:
                    with _named(f"'{key}'"):
                        return key, queue.next_result()
                finally:
                    queue.remove_oldest()

            pairs = pairs_of(items)
            while True:
                try:
                    pair = next(pairs, None)
                    if pair is None:
                        break
                    with _named(f"'{pair[0]}'"):
                        queue.add(pair[0], *work(*pair))
                except Exception:
                    queue.flush()
                    while queue:
                        yield oldest()
                    raise
                while queue.is_full or queue.has_result:
                    yield oldest()
            queue.flush()
            while queue:
                yield oldest()

    def utterance_queue(
        self, threads: int, step: int, options: batches.BatchOptions
    ) -> batches.UtteranceQueue:
        """A queue for the work of many utterances, for callers that report errors of each.

        Args:
            threads: Number of computing threads.
            step: Frames between two rows of output.
            options: The options for sharing minibatches.
        """
        floats = self.input_dim + -(-self.output_dim // step)
        return batches.UtteranceQueue(
            threads,
            self._pool,
            options,
            bytes_per_frame=floats * np.dtype(np.float32).itemsize,
        )

    def xvector(
        self,
        features: npt.ArrayLike | Recording,
        *,
        output: str | None = None,
        chunk_size: int = -1,
        min_chunk_size: int = 100,
        pad_input: bool = True,
    ) -> FloatArray:
        """The output for a whole utterance, or the mean over its chunks, as nnet3-xvector-compute.

        Args:
            features: (frames, input_dim), or a recording; see `compute`.
            output: See `compute`; for a network without its recipe's extract.config the embedding
                layer, such as 'tdnn6.affine'.
            chunk_size: Frames of a chunk; -1 for the whole utterance. The mean is weighted by the
                frames of the chunks.
            min_chunk_size: Shorter utterances, and shorter last chunks, are padded to this.
            pad_input: Whether to pad these, by repeating the first and last frame; otherwise short
                chunks are left out, and short utterances are an error.

        Returns:
            (output_dim,) float32.

        Raises:
            RunError: see `compute`, as for other errors; or the utterance is too short.
            NotComputableError: the network needs frames before the first one.
        """
        options = SegmentOptions(
            chunk_size=chunk_size, min_chunk_size=min_chunk_size, pad_input=pad_input
        )
        model = self._of_output(output)
        return model._do(model.xvector_work(self._frames(features), options))

    def xvectors(
        self,
        items: Iterable[tuple[str, npt.ArrayLike | Recording]],
        *,
        chunk_size: int = -1,
        min_chunk_size: int = 100,
        pad_input: bool = True,
        output: str | None = None,
        threads: int = 1,
        memory: int = 512,
        minibatch_size: int = 8,
    ) -> Iterator[tuple[str, FloatArray]]:
        """The x-vectors of many utterances, equal chunks of several of them as one minibatch.

        Results come in the order of the utterances, and equal those of `xvector` up to rounding. A
        chunk_size gives equal chunks.

        Args:
            items: The key and the features of each utterance, as `read_table` gives them, or a
                recording of it; see `xvector`.
            chunk_size: See `xvector`.
            min_chunk_size: See `xvector`.
            pad_input: See `xvector`.
            output: See `xvector`.
            threads: See `compute_many`, as for the options below.
            memory: See `compute_many`.
            minibatch_size: See `compute_many`.

        Returns:
            An iterator of the key and the (output_dim,) float32 of each utterance.

        Raises:
            RunError: see `xvector`, also for other errors; it names the utterance. Results of
                earlier utterances come before it.
        """
        check_number_of_threads(threads, RunError)
        options = SegmentOptions(
            chunk_size=chunk_size, min_chunk_size=min_chunk_size, pad_input=pad_input
        )
        batch_options = batches.BatchOptions(memory=memory, minibatch_size=minibatch_size)
        model = self._of_output(output)

        def work(key: str, features: npt.ArrayLike | Recording) -> tuple[int, batches.Work]:
            frames = np.array(as_array(self._frames(features), "features"))  # a copy
            todo = model.xvector_work(frames, options)
            return len(frames), todo

        return model._in_order(items, work, threads, 1, batch_options)

    def _frames(self, features: Any) -> Any:
        """The features themselves, or those of a recording."""
        return self.features(features).features if is_recording(features) else features

    def stream(
        self,
        *,
        output: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> Stream:
        """Runs the network over frames as they come, as Kaldi's looped decoders do.

        A chunk is computed as soon as its last frame has come, and continues from the state of the
        chunks before it: nothing is computed twice. Streams with the same options share their
        programs, which are compiled for the first of them.

        Args:
            output: See `compute`.
            **options: The options below. Chunks have 20 frames by default, a sequence at a time.
            ivector_period: Number of frames that share an i-vector: the one that is valid at the
                last of them. None: one i-vector for each chunk, the one that is valid at its last
                input frame, as in Kaldi.
            sequences: Number of sequences that are computed at a time; see `Stream.push_many`.
            frames_per_chunk: Frames that are computed at a time; rounded up to a multiple of
                frame_subsampling_factor, ivector_period and the modulus of the network. Outputs of
                small chunks come sooner; large chunks take less time in total.
            frame_subsampling_factor: One row of output for this many frames.
            extra_left_context_initial: Repetitions of the first frame beyond what the network
                needs.
            scores: See `compute`, as for the options below.
            use_priors: See `compute`.
            acoustic_scale: See `compute`.
            apply_exp: See `compute`.

        Raises:
            RunError: an option is out of range, or priors are asked for but missing, or have no
                logarithm.
            NotComputableError, CompilationError: the outputs cannot be computed chunk by chunk, as
                with frames at a fixed time, or the network looks back so far that its state does
                not repeat within a hundred chunks.
            UnsupportedComponentError: the network has a component of a type that is not
                implemented.
            DeviceMemoryError: the device lacks memory.
        """
        with GATE.importing():
            from nnet3.streams import Stream, StreamOptions

        stream_options, scores = self._options(StreamOptions, options)
        model = self._of_output(output)
        scores.check(model.priors)
        return Stream(model._stream_program(stream_options), model.priors, scores)

    def _stream_program(self, options: StreamOptions) -> StreamProgram:
        """The program for streams with these options; the last few are kept.

        Making one takes seconds, so streams with new options wait for a program in the making.

        Raises:
            Nnet3Error: see `StreamProgram`.
        """
        with GATE.unforked(), self._making_streams:
            from nnet3.streams import StreamProgram

            program = self._stream_programs.pop(options, None)
            if program is None:
                start = time.perf_counter()
                program = StreamProgram(
                    self.nnet,
                    self._device_nnet,
                    options,
                    self._trace,
                    cache_dir=self._settings["cache_dir"],
                )
                self._stream_seconds += time.perf_counter() - start
            self._stream_programs[options] = program
            while len(self._stream_programs) > _MOST_STREAM_PROGRAMS:
                del self._stream_programs[next(iter(self._stream_programs))]
            return program

    def audio_stream(
        self,
        rate: float,
        *,
        speaker: Speaker | None = None,
        output: str | None = None,
        **options: Unpack[StreamKeywords],
    ) -> AudioStream:
        """Runs the network over samples as they come; see `stream` for options and errors.

        Args:
            rate: Samples in a second.
            speaker: What earlier recordings tell of the speaker: the attribute `speaker` of a
                stream at its end. None for a new one.
            output: See `compute`.
            **options: See `stream`; `frames_per_chunk` and `extra_left_context_initial` are those
                of the folder by default.

        Raises:
            RunError: the model has no folder, or see `stream`.
            SpeechError: a file of the folder is missing, or cannot be used; or the rate is another
                one, which the options do not allow.
        """
        source = self.feature_pipeline().stream(rate, speaker)
        if self.folder is not None:
            chosen = self.folder.options
            options.setdefault("frames_per_chunk", chosen.frames_per_chunk)
            options.setdefault("extra_left_context_initial", chosen.extra_left_context_initial)
        return AudioStream(source, self.stream(output=output, **options))

    # ---- work ----

    def compute_work(
        self,
        features: npt.ArrayLike,
        ivector: npt.ArrayLike | None,
        online_ivectors: npt.ArrayLike | None,
        chunk_options: ChunkOptions,
        score_options: ScoreOptions,
        batch_options: batches.BatchOptions | None = None,
    ) -> batches.Work:
        """The work of `compute`, with a task for each chunk, for callers with their own threads.

        Args:
            features: See `compute`, as for the other arrays. Without batch_options they are not
                copied, so they must not change before all tasks are done.
            ivector: One i-vector for the utterance.
            online_ivectors: I-vectors estimated as the utterance went on.
            chunk_options: The options of chunks.
            score_options: How outputs become scores.
            batch_options: If given, the work has runs, which can be computed with those of other
                utterances.

        Raises:
            RunError: see `compute`; its other errors come from tasks and runs.
        """
        return chunk_work(
            self._chunk_network,
            features,
            ivector,
            online_ivectors,
            chunk_options,
            score_options,
            num_beside=0,
            batch_options=batch_options,
        )

    def xvector_work(
        self, features: npt.ArrayLike, options: SegmentOptions | EvenSegmentOptions
    ) -> batches.Work:
        """The work of `xvector`, with a task for each chunk, for callers with their own threads.

        Args:
            features: (frames, input_dim). They are not copied, so they must not change before all
                tasks are done.
            options: How the utterance is cut.

        Raises:
            RunError: see `xvector`; its other errors come from tasks.
        """
        self.check_xvector()
        return segment_work(self._chunk_network, features, options)

    @GATE.importing()
    def check_xvector(self) -> None:
        """Checks that the output at t = 0 may be an x-vector.

        Raises:
            RunError: the network does not pool, and needs frames before the utterance; or the
                folder lacks the extract.config that makes the x-vector the output.
        """
        if self._why_no_xvector:
            raise RunError(self._why_no_xvector)

    @cached_property
    def _why_no_xvector(self) -> str:
        """Why the output at t = 0 cannot be an x-vector; "" if it can."""
        pools = any(each.type == "StatisticsPoolingComponent" for each in self.nnet.components)
        if self.left_context > 0 and not pools and not self._begins_at_zero():
            return (
                "the network does not pool over time, as networks for x-vectors do: its output at "
                f"t = 0 needs {self.left_context} frames before the utterance"
            )
        found = {} if self.folder is None or self.output != OUTPUT else self.folder.files
        if "mean.vec" not in found or "extract.config" in found:
            return ""
        size = len(read_vector(found["mean.vec"]))
        if size == self.output_dim:
            return ""
        return (
            f"{found['mean.vec']} is of x-vectors with {size} columns, but the output has "
            f"{self.output_dim}: expected an extract.config beside the network, or output=..."
        )

    def _begins_at_zero(self) -> bool:
        """Whether the output at t = 0 can be computed from frames from t = 0 on."""
        # Imported here: few models need them.
        from nnet3_computation import ComputationRequest, IoSpecification
        from nnet3_graph import NotComputableError, build_computation_graph

        nnet = self._nnet
        frames = {"input": self.right_context + self.modulus + 1}
        request = ComputationRequest(
            inputs=[
                IoSpecification.from_range(node.name, 0, frames.get(node.name, 1))
                for node in nnet.input_nodes
            ],
            outputs=[IoSpecification.from_range(OUTPUT, 0, 1)],
        )
        try:
            build_computation_graph(nnet, request)
        except NotComputableError:
            return False
        return True

    def _do(self, work: batches.Work) -> FloatArray:
        """Does the work on the threads of the model."""
        self._run(work.tasks)
        return work.finish()

    def _run(self, tasks: Sequence[Task]) -> None:
        """Does tasks on the threads of the model."""
        workers = self._device_nnet.machine.workers
        if workers is not None and self._pool.run_side_by_side(len(tasks)):
            workers.side_by_side(tasks)
        else:
            for task in tasks:
                task()


@contextmanager
def _named(utterance: object) -> Iterator[None]:
    """Within, an error is a RunError that names the utterance."""
    try:
        yield
    except Nnet3Error as error:
        raise RunError(f"utterance {utterance}: {error}") from error
