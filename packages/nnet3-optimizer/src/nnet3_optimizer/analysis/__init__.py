"""The accesses of a computation to its matrices, as arrays."""

from nnet3_compiler.accesses import AccessLists, Layout, Lifetimes, SubmatrixAccesses, Variables

from nnet3_optimizer.analysis.analysis import Analysis, CommandAttributes, Findings, analyze
from nnet3_optimizer.analysis.flow import Flow
from nnet3_optimizer.analysis.uses import Uses

__all__ = [
    "AccessLists",
    "Analysis",
    "CommandAttributes",
    "Findings",
    "Flow",
    "Layout",
    "Lifetimes",
    "SubmatrixAccesses",
    "Uses",
    "Variables",
    "analyze",
]
