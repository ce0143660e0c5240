"""Hidden Markov models of phones: which pdf a phone in its context has, and where it may go.

tree.py, tree_files.py     the tree: from phones in context to pdfs
transitions.py             the transition model: numbers of transitions, their pdfs and costs
"""

from nnet3_training.hmm.transitions import Transitions, read_transitions
from nnet3_training.hmm.tree import ContextDependency
from nnet3_training.hmm.tree_files import read_tree, write_tree

__all__ = [
    "ContextDependency",
    "Transitions",
    "read_transitions",
    "read_tree",
    "write_tree",
]
