"""Which operations share a kernel, and what need not be stored."""
