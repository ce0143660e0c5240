"""Looped computations: endless input, chunk after chunk."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_compiler.looped.closing import close_loop as close_loop
    from nnet3_compiler.looped.compilation import compile_looped as compile_looped
    from nnet3_compiler.looped.requests import extended_requests as extended_requests
    from nnet3_compiler.looped.requests import looped_chunk_size as looped_chunk_size
    from nnet3_compiler.looped.requests import looped_requests as looped_requests
    from nnet3_compiler.looped.requests import stream_network as stream_network
    from nnet3_compiler.looped.requests import with_ivector_period as with_ivector_period
    from nnet3_compiler.looped.requests import with_least_context as with_least_context
    from nnet3_compiler.looped.state import Chunk as Chunk
    from nnet3_compiler.looped.state import ChunksWithState as ChunksWithState
    from nnet3_compiler.looped.state import chunks_with_state as chunks_with_state
else:
    __getattr__, __dir__ = on_first_use(__name__)
