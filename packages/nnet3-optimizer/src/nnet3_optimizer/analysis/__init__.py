"""What a computation does to its matrices, as arrays."""

from nnet3_optimizer.analysis.accesses import AccessLists, Lifetimes, SubmatrixAccesses
from nnet3_optimizer.analysis.analysis import Analysis, analyze
from nnet3_optimizer.analysis.layout import Layout
from nnet3_optimizer.analysis.variables import Variables

__all__ = [
    "AccessLists",
    "Analysis",
    "Layout",
    "Lifetimes",
    "SubmatrixAccesses",
    "Variables",
    "analyze",
]
