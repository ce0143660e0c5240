"""Statistics over time, extracted and pooled for some sequences at a time.

`chains` finds what is extracted and pooled, `parts` where it can be cut, `splitting` puts the parts
in its place; `split_statistics` is the pass with its rules.
"""

from nnet3_optimizer.passes.sums.split_statistics.split_statistics import split_statistics

__all__ = ["split_statistics"]
