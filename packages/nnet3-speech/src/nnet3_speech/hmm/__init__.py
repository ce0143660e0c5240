"""Hidden Markov models of phones: the pdfs of a phone in its context, and its transitions.

tree.py            the tree: from phones in context to pdfs; its files
transitions.py     the transition model: numbers of transitions, their pdfs, costs, phones, states
"""

from nnet3_speech.hmm.transitions import PdfLabels as PdfLabels
from nnet3_speech.hmm.transitions import PhoneState as PhoneState
from nnet3_speech.hmm.transitions import Transitions as Transitions
from nnet3_speech.hmm.transitions import read_transitions as read_transitions
from nnet3_speech.hmm.transitions import topology_of as topology_of
from nnet3_speech.hmm.tree import ContextDependency as ContextDependency
from nnet3_speech.hmm.tree import Leaf as Leaf
from nnet3_speech.hmm.tree import Split as Split
from nnet3_speech.hmm.tree import Table as Table
from nnet3_speech.hmm.tree import read_tree as read_tree
