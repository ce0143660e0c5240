"""How many threads may be asked for: what tools know before they load anything else."""

MOST_THREADS = 256
"""So many can be asked for: with many more, what is kept for each pair of them fills the memory."""
