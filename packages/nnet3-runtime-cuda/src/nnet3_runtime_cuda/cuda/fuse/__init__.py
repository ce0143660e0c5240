"""Which operations share a kernel, and which results need not be stored."""
