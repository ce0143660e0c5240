"""The passes: each is a module or a subpackage; `pipeline` has their order.

rows/      commands that name rows
sums/      sums
matrices/  matrices: which exist, their rows, and their lifetimes
backward/  the backward part, and the values that are kept for it
"""
