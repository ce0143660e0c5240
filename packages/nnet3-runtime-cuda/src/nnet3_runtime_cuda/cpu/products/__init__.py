"""Matrix products on the processor: choice of library and layout."""
