"""Sets of rows as single values, not row by row.

patterns.py      sequences that have the same rows
hull.py          boxes of (t, x) around a set
bit_layout.py    a set as the bits of one integer
index_set.py     the indexes of a node, shared by all nodes with the same indexes
"""

from nnet3_graph.sets.bits import BitLayout
from nnet3_graph.sets.index_set import Grid, IndexSet, Patterns

__all__ = ["BitLayout", "Grid", "IndexSet", "Patterns"]
