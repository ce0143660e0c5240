"""Components that use several frames: statistics, attention, distribution, truncation."""
