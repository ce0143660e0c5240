"""Load Kaldi nnet3 networks and run them, whole utterances or streams.

Names that people look for first are here, too, whichever package they are from: to read a network,
compile a computation and run it, and to read and write tables.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_computation import ComputationRequest as ComputationRequest
    from nnet3_computation import IoSpecification as IoSpecification
    from nnet3_descriptors import Nnet as Nnet
    from nnet3_descriptors import parse_config as parse_config
    from nnet3_descriptors import read_nnet as read_nnet
    from nnet3_descriptors import write_nnet as write_nnet
    from nnet3_graph import compute_context as compute_context
    from nnet3_runtime_cuda import NnetComputer as NnetComputer
    from nnet3_tables import read_table as read_table
    from nnet3_tables import write_table as write_table

    from nnet3.audio import AudioStream as AudioStream
    from nnet3.batches.minibatches import BatchOptions as BatchOptions
    from nnet3.batches.minibatches import Run as Run
    from nnet3.batches.minibatches import Work as Work
    from nnet3.batches.queue import UtteranceQueue as UtteranceQueue
    from nnet3.caching import CachingCompiler as CachingCompiler
    from nnet3.caching import compile as compile
    from nnet3.chunks import ChunkOptions as ChunkOptions
    from nnet3.errors import CacheError as CacheError
    from nnet3.exporting import export_c as export_c
    from nnet3.exporting import export_onnx as export_onnx
    from nnet3.exporting import to_onnx as to_onnx
    from nnet3.model import Model as Model
    from nnet3.model import load as load
    from nnet3.output_scores import ScoreOptions as ScoreOptions
    from nnet3.streams import Stream as Stream
    from nnet3.streams import StreamState as StreamState
    from nnet3.utterance_segments import EvenSegmentOptions as EvenSegmentOptions
    from nnet3.utterance_segments import SegmentOptions as SegmentOptions
else:
    __getattr__, __dir__ = on_first_use(__name__)
