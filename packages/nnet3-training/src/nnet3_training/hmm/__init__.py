"""Transition models made and estimated; nnet3_speech.hmm reads them, and the trees.

initial_transitions.py     a transition model made from a tree and a topology
transition_training.py     its probabilities, estimated from alignments
"""

from nnet3_training.hmm.initial_transitions import (
    check_topology,
    initial_transition_model,
    read_hmm_topology,
)
from nnet3_training.hmm.transition_training import (
    TrainedTransitions,
    TransitionTraining,
    train_transitions,
)

__all__ = [
    "TrainedTransitions",
    "TransitionTraining",
    "check_topology",
    "initial_transition_model",
    "read_hmm_topology",
    "train_transitions",
]
