"""Memory of a device: its shadow on the host, the memory of a program, and the budget."""
