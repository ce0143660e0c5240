"""Symbols for numbers: unknown functions of unknown arguments, and matrices of them."""
