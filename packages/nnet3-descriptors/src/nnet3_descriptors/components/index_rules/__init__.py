"""The input rows on which an output row depends: rules that component types share."""

from nnet3_descriptors.components.declaration.properties import AnyWithin as AnyWithin
from nnet3_descriptors.components.declaration.properties import AtOffsets as AtOffsets
from nnet3_descriptors.components.declaration.properties import ClosedForm as ClosedForm
from nnet3_descriptors.components.declaration.properties import has_closed_form as has_closed_form
from nnet3_descriptors.components.index_rules.time_offsets import TimeGrid as TimeGrid
from nnet3_descriptors.components.index_rules.time_offsets import TimeOffsetRules as TimeOffsetRules
from nnet3_descriptors.components.index_rules.windows import NoInputRules as NoInputRules
from nnet3_descriptors.components.index_rules.windows import RowArray as RowArray
from nnet3_descriptors.components.index_rules.windows import Windows as Windows
from nnet3_descriptors.components.index_rules.windows import find_rows as find_rows
from nnet3_descriptors.components.index_rules.windows import no_such_range as no_such_range
from nnet3_descriptors.components.index_rules.windows import no_such_row as no_such_row
from nnet3_descriptors.components.index_rules.windows import precomputed as precomputed
from nnet3_descriptors.components.index_rules.windows import row_array as row_array
from nnet3_descriptors.components.index_rules.windows import sequence_order as sequence_order
from nnet3_descriptors.components.index_rules.windows import time_ranges as time_ranges
from nnet3_descriptors.components.index_rules.windows import wrong_count as wrong_count
