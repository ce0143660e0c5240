"""Load Kaldi nnet3 networks and run them, whole utterances or streams.

Names that people look for first are here, too, whichever package they are from: to read a network,
compile a computation and run it, and to read and write tables.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest, IoSpecification
    from nnet3_descriptors import Nnet, parse_config, read_nnet, write_nnet
    from nnet3_graph import compute_context
    from nnet3_runtime_cuda import NnetComputer
    from nnet3_tables import read_table, write_table

    from nnet3.audio import AudioStream
    from nnet3.batches.forming import BatchOptions
    from nnet3.batches.queue import UtteranceQueue
    from nnet3.caching import CachingCompiler, compile
    from nnet3.chunks import ChunkOptions
    from nnet3.errors import CacheError
    from nnet3.model import Model, load
    from nnet3.onnx_export import export_onnx, to_onnx
    from nnet3.output_scores import ScoreOptions
    from nnet3.streams import Stream, StreamState
    from nnet3.utterance_segments import EvenSegmentOptions, SegmentOptions
    from nnet3.utterance_work import Run, Work

__version__ = "0.2.0"

__all__ = [
    "AudioStream",
    "BatchOptions",
    "CacheError",
    "CachingCompiler",
    "ChunkOptions",
    "ComputationRequest",
    "EvenSegmentOptions",
    "IoSpecification",
    "Model",
    "Nnet",
    "NnetComputer",
    "Run",
    "ScoreOptions",
    "SegmentOptions",
    "Stream",
    "StreamState",
    "UtteranceQueue",
    "Work",
    "compile",
    "compute_context",
    "export_onnx",
    "load",
    "parse_config",
    "read_nnet",
    "read_table",
    "to_onnx",
    "write_nnet",
    "write_table",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_computation": (
                "ComputationRequest",
                "IoSpecification",
            ),
            "nnet3_descriptors": (
                "Nnet",
                "parse_config",
                "read_nnet",
                "write_nnet",
            ),
            "nnet3_graph": ("compute_context",),
            "nnet3_runtime_cuda": ("NnetComputer",),
            "nnet3_tables": (
                "read_table",
                "write_table",
            ),
            "nnet3.audio": ("AudioStream",),
            "nnet3.batches.forming": ("BatchOptions",),
            "nnet3.batches.queue": ("UtteranceQueue",),
            "nnet3.caching": (
                "CachingCompiler",
                "compile",
            ),
            "nnet3.chunks": ("ChunkOptions",),
            "nnet3.errors": ("CacheError",),
            "nnet3.model": (
                "Model",
                "load",
            ),
            "nnet3.onnx_export": (
                "export_onnx",
                "to_onnx",
            ),
            "nnet3.output_scores": ("ScoreOptions",),
            "nnet3.streams": (
                "Stream",
                "StreamState",
            ),
            "nnet3.utterance_segments": (
                "EvenSegmentOptions",
                "SegmentOptions",
            ),
            "nnet3.utterance_work": (
                "Run",
                "Work",
            ),
        },
    )
