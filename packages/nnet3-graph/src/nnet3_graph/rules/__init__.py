"""Rules: conditions for computing a row of a node, and the rows of other nodes that it reads."""

from nnet3_graph.rules.combinations import ALWAYS, NEVER, All, ByTime, First, InRows, Optional
from nnet3_graph.rules.reads import AnyOf, Asked, Fixed, Leaf, Rule, Shift

__all__ = [
    "ALWAYS",
    "NEVER",
    "All",
    "AnyOf",
    "Asked",
    "ByTime",
    "First",
    "Fixed",
    "InRows",
    "Leaf",
    "Optional",
    "Rule",
    "Shift",
]
