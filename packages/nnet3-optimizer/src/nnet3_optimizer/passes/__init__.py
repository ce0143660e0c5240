"""The passes: each is a module or a subpackage; `pipeline` has their order.

rows/      commands that name rows
sums/      sums
matrices/  the number of matrices, their rows, and their lifetimes backward/  the backward part, and
the values that it needs from the forward part
"""
