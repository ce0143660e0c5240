"""Random networks and requests as a strategy, compiled."""

from example_generator import draw_example
from hypothesis import note, reject
from hypothesis import strategies as st
from nnet3_compiler import compile_computation
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet


@st.composite
def examples(draw: st.DrawFn) -> tuple[Nnet, NnetComputation]:
    """A network and the computation of a request for it."""
    example = draw_example(draw(st.randoms(use_true_random=False)))
    if example is None:
        reject()
    note(example.config)
    return example.nnet, compile_computation(example.nnet, example.request)
