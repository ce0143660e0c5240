"""A decoding graph of four states, and the transition model that its inputs belong to."""

from typing import TYPE_CHECKING

import numpy as np
from nnet3_descriptors.model_files import HmmState, TransitionModel

if TYPE_CHECKING:
    import kaldifst

WORDS = {0: "<eps>", 1: "ab", 2: "c"}
BOUNDARIES = {1: "begin", 2: "end", 3: "singleton"}
CHAIN = (
    HmmState(forward_pdf_class=0, self_loop_pdf_class=1, transitions=((0, 0.5), (1, 0.5))),
    HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=()),
)
MODEL = TransitionModel(
    phones=(1, 2, 3),
    phone_entries=(-1, 0, 0, 0),
    entries=(CHAIN,),
    tuples=((1, 0, 0, 1), (2, 0, 2, 3), (3, 0, 4, 5)),
    log_probs=np.log(np.array([1.0, *[0.5] * 6], np.float32)),
    chain=True,
)
"""Phones of one state; transition-ids 2, 4 and 6 enter them, with pdfs 0, 2 and 4."""


def small_graph() -> "kaldifst.StdVectorFst":
    """Any sequence of "ab" (phones 1 and 2, the word label on the second) and "c" (phone 3)."""
    import kaldifst

    graph = kaldifst.StdVectorFst()
    for _ in range(4):
        graph.add_state()
    graph.start = 0
    for state, ids, word, next_state in (
        (0, 2, 0, 1),
        (1, 1, 0, 1),
        (1, 4, 1, 2),
        (2, 3, 0, 2),
        (0, 6, 2, 3),
        (3, 5, 0, 3),
    ):
        graph.add_arc(state, kaldifst.StdArc(ids, word, 0.25, next_state))
    for state in (2, 3):
        graph.add_arc(state, kaldifst.StdArc(0, 0, 0.0, 0))
        graph.set_final(state, 0.5)
    return graph
