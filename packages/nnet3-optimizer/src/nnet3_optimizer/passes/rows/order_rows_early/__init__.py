"""The order of rows that the user wants, made where it costs least.

`path` finds what rows go through on the way to an output, `order_rows_early` is the pass with its
rules.
"""

from nnet3_optimizer.passes.rows.order_rows_early.order_rows_early import order_rows_early

__all__ = ["order_rows_early"]
