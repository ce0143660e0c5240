"""Passes on matrices: which of them there are, in how many rows, from when to when."""
