"""One pass a module, or a subpackage where it takes several; `pipeline` has their order.

rows/      commands that name rows
sums/      sums
matrices/  which matrices there are, in how many rows, from when to when
backward/  the backward part, and what waits for it
"""
