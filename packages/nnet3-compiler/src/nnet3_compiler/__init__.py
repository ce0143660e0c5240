"""Compile a Kaldi nnet3 network and a request into a program of matrix commands."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_compiler.compiler import (
        Compiler,
        CompilerOptions,
        compile_computation,
        compile_segments,
    )
    from nnet3_compiler.errors import CompilationError
    from nnet3_compiler.looped import (
        Chunk,
        ChunksWithState,
        chunks_with_state,
        close_loop,
        compile_looped,
        looped_chunk_size,
        looped_requests,
        stream_network,
        with_ivector_period,
        with_least_context,
    )

__version__ = "0.2.0"

__all__ = [
    "Chunk",
    "ChunksWithState",
    "CompilationError",
    "Compiler",
    "CompilerOptions",
    "chunks_with_state",
    "close_loop",
    "compile_computation",
    "compile_looped",
    "compile_segments",
    "looped_chunk_size",
    "looped_requests",
    "stream_network",
    "with_ivector_period",
    "with_least_context",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_compiler.compiler": (
                "Compiler",
                "CompilerOptions",
                "compile_computation",
                "compile_segments",
            ),
            "nnet3_compiler.errors": ("CompilationError",),
            "nnet3_compiler.looped": (
                "Chunk",
                "ChunksWithState",
                "chunks_with_state",
                "close_loop",
                "compile_looped",
                "looped_chunk_size",
                "looped_requests",
                "stream_network",
                "with_ivector_period",
                "with_least_context",
            ),
        },
    )
