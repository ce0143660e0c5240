"""Hidden Markov models of phones: the pdfs of a phone in its context, and its transitions.

tree.py, tree_files.py     the tree: from phones in context to pdfs
transitions.py             the transition model: numbers of transitions, their pdfs and costs
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
from nnet3_training.hmm.transitions import Transitions, read_transitions
from nnet3_training.hmm.tree import ContextDependency, Leaf, Split, Table
from nnet3_training.hmm.tree_files import read_tree, write_tree

__all__ = [
    "ContextDependency",
    "Leaf",
    "Split",
    "Table",
    "TrainedTransitions",
    "TransitionTraining",
    "Transitions",
    "check_topology",
    "initial_transition_model",
    "read_hmm_topology",
    "read_transitions",
    "read_tree",
    "train_transitions",
    "write_tree",
]
