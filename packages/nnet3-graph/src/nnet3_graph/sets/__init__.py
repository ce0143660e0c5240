"""Sets of rows as single values, not row by row.

bits.py         a set as the bits of one integer; boxes of (t, x) around a set
index_set.py    the indexes of a node, shared by nodes that have the same; sequences with equal rows
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_graph.sets.bits import BitLayout as BitLayout
    from nnet3_graph.sets.bits import Hull as Hull
    from nnet3_graph.sets.index_set import Grid as Grid
    from nnet3_graph.sets.index_set import IndexSet as IndexSet
    from nnet3_graph.sets.index_set import Patterns as Patterns
else:
    __getattr__, __dir__ = on_first_use(__name__)
