"""Load Kaldi nnet3 networks and run them, whole utterances or streams."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3.audio import AudioStream
    from nnet3.batches.forming import BatchOptions
    from nnet3.batches.queue import UtteranceQueue
    from nnet3.caching import CachingCompiler
    from nnet3.chunks import ChunkOptions
    from nnet3.errors import CacheError
    from nnet3.model import Model, load
    from nnet3.onnx_export import export_onnx
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
    "EvenSegmentOptions",
    "Model",
    "Run",
    "ScoreOptions",
    "SegmentOptions",
    "Stream",
    "StreamState",
    "UtteranceQueue",
    "Work",
    "export_onnx",
    "load",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3.audio": ("AudioStream",),
            "nnet3.batches.forming": ("BatchOptions",),
            "nnet3.batches.queue": ("UtteranceQueue",),
            "nnet3.caching": ("CachingCompiler",),
            "nnet3.chunks": ("ChunkOptions",),
            "nnet3.errors": ("CacheError",),
            "nnet3.model": (
                "Model",
                "load",
            ),
            "nnet3.onnx_export": ("export_onnx",),
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
