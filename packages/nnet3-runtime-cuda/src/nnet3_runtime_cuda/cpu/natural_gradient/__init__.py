"""The natural gradient on the processor."""
