"""What a network's nodes depend on: the rule of each, and the groups that depend on each other."""

from nnet3_graph.nodes.order import node_groups
from nnet3_graph.nodes.rules import NodeRules, node_rules

__all__ = ["NodeRules", "node_groups", "node_rules"]
