"""Rows are brought into the order that the user wants where this costs least.

`path` finds the commands between this place and an output; `order_rows_early` is the pass with its
rules.
"""

from nnet3_optimizer.passes.rows.order_rows_early.order_rows_early import order_rows_early

__all__ = ["order_rows_early"]
