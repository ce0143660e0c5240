"""Finite-state transducers as arrays, and OpenFst's files.

fst.py           the value
files.py         binary and text, read and written
operations.py    concatenation, order of states
"""
