"""Passes for the backward part: derivatives, and the values that they need."""
