"""Statistics over time, extracted and pooled for some sequences at a time.

`chains` finds what is extracted and pooled, `parts` where it can be cut, `splitting` puts the parts
in its place; `statistics_parts` is the pass with its rules.
"""

from nnet3_optimizer.passes.statistics_parts.statistics_parts import split_statistics

__all__ = ["split_statistics"]
