"""Passes on matrices: which exist, their rows, and their lifetimes."""
