"""Hidden Markov models of phones: the pdfs of a phone in its context, and its transitions.

tree.py, tree_files.py     the tree: from phones in context to pdfs
transitions.py             the transition model: numbers of transitions, their pdfs and costs
labels.py                  the phones and states of pdfs
"""

from nnet3_speech.hmm.labels import PdfLabels, PhoneState
from nnet3_speech.hmm.transitions import Transitions, read_transitions, topology_of
from nnet3_speech.hmm.tree import ContextDependency, Leaf, Split, Table
from nnet3_speech.hmm.tree_files import read_tree, write_tree

__all__ = [
    "ContextDependency",
    "Leaf",
    "PdfLabels",
    "PhoneState",
    "Split",
    "Table",
    "Transitions",
    "read_transitions",
    "read_tree",
    "topology_of",
    "write_tree",
]
