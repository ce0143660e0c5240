"""The accesses of a computation to its matrices, as arrays."""

from nnet3_compiler.accesses import AccessLists, Layout, Lifetimes, SubmatrixAccesses, Variables

from nnet3_optimizer.analysis.analysis import Analysis, analyze

__all__ = [
    "AccessLists",
    "Analysis",
    "Layout",
    "Lifetimes",
    "SubmatrixAccesses",
    "Variables",
    "analyze",
]
