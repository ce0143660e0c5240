"""The input rows on which an output row depends: rules that component types share."""

from nnet3_descriptors.components.declaration.properties import (
    AnyWithin,
    AtOffsets,
    ClosedForm,
    has_closed_form,
)
from nnet3_descriptors.components.index_rules.time_offsets import TimeGrid, TimeOffsetRules
from nnet3_descriptors.components.index_rules.windows import (
    NoInputRules,
    RowArray,
    Windows,
    find_rows,
    no_such_range,
    no_such_row,
    precomputed,
    row_array,
    sequence_order,
    time_ranges,
    wrong_count,
)

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
