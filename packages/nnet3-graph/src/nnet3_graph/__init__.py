"""The computation graph: the rows that a Kaldi nnet3 network has to compute for a request."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_graph.builder import ComputationGraphBuilder as ComputationGraphBuilder
    from nnet3_graph.builder import build_computation_graph as build_computation_graph
    from nnet3_graph.context import compute_context as compute_context
    from nnet3_graph.errors import ContextError as ContextError
    from nnet3_graph.errors import MissingFrames as MissingFrames
    from nnet3_graph.errors import NotComputableError as NotComputableError
    from nnet3_graph.errors import UnboundedComputationError as UnboundedComputationError
    from nnet3_graph.examination import ComputableInfo as ComputableInfo
    from nnet3_graph.examination import Examined as Examined
    from nnet3_graph.graph import ComputationGraph as ComputationGraph
    from nnet3_graph.later_chunks import fixed_frame as fixed_frame
    from nnet3_graph.later_chunks import unsettled_node as unsettled_node
    from nnet3_graph.sets.index_set import IndexSet as IndexSet
else:
    __getattr__, __dir__ = on_first_use(__name__)
