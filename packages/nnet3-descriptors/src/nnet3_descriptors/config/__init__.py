"""Config text: lines such as `component-node name=... component=... input=...`."""

from nnet3_descriptors.config.reader import parse_config
from nnet3_descriptors.config.writer import node_config_lines

__all__ = ["node_config_lines", "parse_config"]
