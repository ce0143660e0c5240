"""The order of rows that the user wants, made where it costs least.

`path` finds what rows go through on the way to an output, `row_order` is the pass with its rules.
"""

from nnet3_optimizer.passes.row_order.row_order import order_rows_early

__all__ = ["order_rows_early"]
