"""Compile a Kaldi nnet3 network and a request into a program of matrix commands."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_compiler.compiler import Compiler as Compiler
    from nnet3_compiler.compiler import compile_computation as compile_computation
    from nnet3_compiler.compiler import compile_segments as compile_segments
    from nnet3_compiler.errors import CompilationError as CompilationError
    from nnet3_compiler.looped import Chunk as Chunk
    from nnet3_compiler.looped import ChunksWithState as ChunksWithState
    from nnet3_compiler.looped import chunks_with_state as chunks_with_state
    from nnet3_compiler.looped import close_loop as close_loop
    from nnet3_compiler.looped import compile_looped as compile_looped
    from nnet3_compiler.looped import looped_chunk_size as looped_chunk_size
    from nnet3_compiler.looped import looped_requests as looped_requests
    from nnet3_compiler.looped import stream_network as stream_network
    from nnet3_compiler.looped import with_ivector_period as with_ivector_period
    from nnet3_compiler.looped import with_least_context as with_least_context
    from nnet3_compiler.options import CompilerOptions as CompilerOptions
else:
    __getattr__, __dir__ = on_first_use(__name__)
