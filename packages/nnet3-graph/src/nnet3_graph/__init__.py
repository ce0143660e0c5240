"""The computation graph: the rows that a Kaldi nnet3 network has to compute for a request."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_graph.builder import ComputationGraphBuilder, build_computation_graph
    from nnet3_graph.context import compute_context
    from nnet3_graph.errors import (
        ContextError,
        MissingFrames,
        NotComputableError,
        UnboundedComputationError,
    )
    from nnet3_graph.examination import BreadthFirstExamination, ComputableInfo, Examined
    from nnet3_graph.fixed_frames import fixed_frame
    from nnet3_graph.graph import ComputationGraph
    from nnet3_graph.sets.index_set import IndexSet
    from nnet3_graph.settling import unsettled_node

__version__ = "0.2.0"

__all__ = [
    "BreadthFirstExamination",
    "ComputableInfo",
    "ComputationGraph",
    "ComputationGraphBuilder",
    "ContextError",
    "Examined",
    "IndexSet",
    "MissingFrames",
    "NotComputableError",
    "UnboundedComputationError",
    "build_computation_graph",
    "compute_context",
    "fixed_frame",
    "unsettled_node",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_graph.builder": (
                "ComputationGraphBuilder",
                "build_computation_graph",
            ),
            "nnet3_graph.context": ("compute_context",),
            "nnet3_graph.errors": (
                "ContextError",
                "MissingFrames",
                "NotComputableError",
                "UnboundedComputationError",
            ),
            "nnet3_graph.examination": (
                "BreadthFirstExamination",
                "ComputableInfo",
                "Examined",
            ),
            "nnet3_graph.fixed_frames": ("fixed_frame",),
            "nnet3_graph.graph": ("ComputationGraph",),
            "nnet3_graph.sets.index_set": ("IndexSet",),
            "nnet3_graph.settling": ("unsettled_node",),
        },
    )
