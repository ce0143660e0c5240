"""Passes for the backward part: derivatives, and the values that are kept for them."""
