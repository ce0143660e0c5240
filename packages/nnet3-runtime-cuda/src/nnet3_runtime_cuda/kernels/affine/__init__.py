"""Affine and linear maps, also of rows spliced over time."""
