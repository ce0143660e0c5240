"""Looped computations: endless input, chunk after chunk."""

from nnet3_compiler.looped.closing import close_loop
from nnet3_compiler.looped.compilation import compile_looped
from nnet3_compiler.looped.requests import (
    extended_requests,
    looped_chunk_size,
    looped_requests,
    stream_network,
    with_ivector_period,
    with_least_context,
)
from nnet3_compiler.looped.state import Chunk, ChunksWithState, chunks_with_state

__all__ = [
    "Chunk",
    "ChunksWithState",
    "chunks_with_state",
    "close_loop",
    "compile_looped",
    "extended_requests",
    "looped_chunk_size",
    "looped_requests",
    "stream_network",
    "with_ivector_period",
    "with_least_context",
]
