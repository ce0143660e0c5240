"""The input rows on which an output row depends: rules that component types share."""

from nnet3_descriptors.components.declaration.closed_form import (
    AnyWithin,
    AtOffsets,
    ClosedForm,
    has_closed_form,
)
from nnet3_descriptors.components.index_rules.no_input import NoInputRules
from nnet3_descriptors.components.index_rules.precomputed import (
    RowArray,
    find_rows,
    no_such_range,
    no_such_row,
    precomputed,
    row_array,
    sequence_order,
    time_ranges,
    wrong_count,
)
from nnet3_descriptors.components.index_rules.time_grid import TimeGrid
from nnet3_descriptors.components.index_rules.time_offsets import TimeOffsetRules
from nnet3_descriptors.components.index_rules.windows import Windows

__all__ = [
    "AnyWithin",
    "AtOffsets",
    "ClosedForm",
    "NoInputRules",
    "RowArray",
    "TimeGrid",
    "TimeOffsetRules",
    "Windows",
    "find_rows",
    "has_closed_form",
    "no_such_range",
    "no_such_row",
    "precomputed",
    "row_array",
    "sequence_order",
    "time_ranges",
    "wrong_count",
]
