"""Streams: frames that come bit by bit, with outputs as soon as their context is complete."""

from nnet3.streams.program import StreamOptions, StreamProgram
from nnet3.streams.sequence import NodeRows, StreamState
from nnet3.streams.stream import Stream

__all__ = ["NodeRows", "Stream", "StreamOptions", "StreamProgram", "StreamState"]
