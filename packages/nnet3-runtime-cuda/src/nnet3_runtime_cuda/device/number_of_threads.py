"""The limit on the number of threads, in a module that tools load before anything else."""

MOST_THREADS = 256
"""The most threads: with many more, the data for each pair of threads would fill the memory."""
