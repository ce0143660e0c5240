"""Streams: frames that come bit by bit, with outputs as soon as their context is complete."""

from nnet3_runtime_cuda.inference.streams.options import StreamOptions
from nnet3_runtime_cuda.inference.streams.program import StreamProgram, StreamPrograms
from nnet3_runtime_cuda.inference.streams.state import NodeRows, StreamState
from nnet3_runtime_cuda.inference.streams.stream import Stream

__all__ = ["NodeRows", "Stream", "StreamOptions", "StreamProgram", "StreamPrograms", "StreamState"]
