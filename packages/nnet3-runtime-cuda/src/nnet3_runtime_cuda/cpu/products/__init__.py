"""Products of matrices on the processor: which library, which layout."""
