"""From steps to commands: the submatrices of values, the terms of sums, and the commands."""
