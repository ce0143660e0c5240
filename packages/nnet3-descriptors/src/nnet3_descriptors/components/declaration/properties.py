"""The promises of a component to the compiler, the optimizer and the runtime."""

import enum


class ComponentProperties(enum.IntFlag):
    """Promises of a component; the bits are those of Kaldi."""

    SIMPLE = 0x0001
    """Row i of the output depends on row i of the input alone, whatever its index."""
    UPDATABLE = 0x0002
    """It has parameters that training changes."""
    PROPAGATE_IN_PLACE = 0x0004
    """Input and output of the forward computation may be the same matrix."""
    PROPAGATE_ADDS = 0x0008
    """The forward computation adds to its output instead of setting it (unless in place)."""
    REORDERS_INDEXES = 0x0010
    """`reorder_indexes` may change the order of the rows or pad them."""
    BACKPROP_ADDS = 0x0020
    """The backward computation adds to the input derivative instead of setting it."""
    BACKPROP_NEEDS_INPUT = 0x0040
    """The backward computation reads the input of the forward computation."""
    BACKPROP_NEEDS_OUTPUT = 0x0080
    """The backward computation reads the output of the forward computation."""
    BACKPROP_IN_PLACE = 0x0100
    """The derivatives at input and output may be the same matrix."""
    STORES_STATS = 0x0200
    """It accumulates statistics of its activations."""
    INPUT_CONTIGUOUS = 0x0400
    """Rows of the input, and of its derivative, follow each other without a gap."""
    OUTPUT_CONTIGUOUS = 0x0800
    """Rows of the output, and of its derivative, follow each other without a gap."""
    USES_MEMO = 0x1000
    """The forward computation hands a memo to the backward computation."""
    RANDOM = 0x2000
    """Its output depends on a random generator."""


IN_PLACE = (
    ComponentProperties.SIMPLE
    | ComponentProperties.PROPAGATE_IN_PLACE
    | ComponentProperties.BACKPROP_IN_PLACE
)
"""The promises of element-wise maps."""
