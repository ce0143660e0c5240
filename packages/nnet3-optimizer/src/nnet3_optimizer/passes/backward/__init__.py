"""Passes for the backward part: what is derived, and what waits for it in which form."""
