"""The dependencies of a network's nodes: the rule of each node, and groups of nodes in cycles."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_graph.nodes.order import Cycle as Cycle
    from nnet3_graph.nodes.order import node_groups as node_groups
    from nnet3_graph.nodes.order import node_users as node_users
    from nnet3_graph.nodes.rules import NodeRules as NodeRules
    from nnet3_graph.nodes.rules import node_rules as node_rules
else:
    __getattr__, __dir__ = on_first_use(__name__)
