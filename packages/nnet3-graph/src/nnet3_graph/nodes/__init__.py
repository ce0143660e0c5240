"""The dependencies of a network's nodes: the rule of each node, and groups of nodes in cycles."""

from nnet3_graph.nodes.order import Cycle, node_groups, node_users
from nnet3_graph.nodes.rules import NodeRules, node_rules

__all__ = [
    "Cycle",
    "NodeRules",
    "node_groups",
    "node_rules",
    "node_users",
]
