"""Finite-state transducers as arrays, and OpenFst's files.

fst.py                 the value
files.py               reading and writing, binary and text
operations.py          concatenation, order of states
graph.py               an acceptor that is being built
machines.py            operations of OpenFst
local_epsilons.py      removal of epsilons that adds no arcs
joining.py             equal states joined
pushing.py             weights of all states with the same sum
"""

from nnet3_training.chain.fsts.graph import Graph

__all__ = ["Graph"]
