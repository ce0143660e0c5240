"""Statistics over time, extracted and pooled for some sequences at a time.

`chains` finds the extractions and poolings, `parts` where they can be cut, `splitting` puts the
parts in their place; `split_statistics` is the pass with its rules.
"""

from nnet3_optimizer.passes.sums.split_statistics.split_statistics import split_statistics

__all__ = ["split_statistics"]
