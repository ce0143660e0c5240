"""Maps of each element, or of each column, alone."""
