"""Looped computations: endless input, chunk after chunk."""

from nnet3_compiler.looped.closing import close_loop
from nnet3_compiler.looped.compilation import compile_looped, extended_requests
from nnet3_compiler.looped.requests import (
    looped_chunk_size,
    looped_requests,
    with_ivector_period,
)

__all__ = [
    "close_loop",
    "compile_looped",
    "extended_requests",
    "looped_chunk_size",
    "looped_requests",
    "with_ivector_period",
]
