"""Finite-state transducers as arrays, and OpenFst's files.

fst.py                 the value, an acceptor that is being built, concatenation, order of states
files.py               reading and writing, binary and text
machines.py            operations of OpenFst
minimization.py        local epsilons removed, weights pushed, equal states joined
"""

from nnet3_training.chain.fsts.fst import Graph as Graph
