"""Chooses operations that share a kernel, and results that need not be stored."""
