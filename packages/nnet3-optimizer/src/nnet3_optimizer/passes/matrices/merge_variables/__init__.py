"""Two matrices become one.

`candidates` finds what can be merged, `legality` when that is legal, `selection` what is merged at
once, and `placement` where; `merge_variables` is the pass with its rules.
"""

from nnet3_optimizer.passes.matrices.merge_variables.merge_variables import merge_variables

__all__ = ["merge_variables"]
