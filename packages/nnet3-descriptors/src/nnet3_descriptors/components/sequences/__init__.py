"""Components for sequences: nonlinearities of recurrences, attention and statistics over time."""
