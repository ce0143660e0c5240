"""Which rows of the input a row of the output depends on: rules that component types share."""

from nnet3_descriptors.components.index_rules.no_input import NoInputRules
from nnet3_descriptors.components.index_rules.time_offsets import TimeOffsetRules

__all__ = ["NoInputRules", "TimeOffsetRules"]
