"""Rules: conditions for computing a row of a node, and the rows of other nodes that it reads."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_graph.rules.combinations import ALWAYS as ALWAYS
    from nnet3_graph.rules.combinations import NEVER as NEVER
    from nnet3_graph.rules.combinations import All as All
    from nnet3_graph.rules.combinations import ByTime as ByTime
    from nnet3_graph.rules.combinations import First as First
    from nnet3_graph.rules.combinations import InRows as InRows
    from nnet3_graph.rules.combinations import Optional as Optional
    from nnet3_graph.rules.reads import AnyOf as AnyOf
    from nnet3_graph.rules.reads import Asked as Asked
    from nnet3_graph.rules.reads import Fixed as Fixed
    from nnet3_graph.rules.reads import Leaf as Leaf
    from nnet3_graph.rules.reads import Rule as Rule
    from nnet3_graph.rules.reads import Shift as Shift
else:
    __getattr__, __dir__ = on_first_use(__name__)
