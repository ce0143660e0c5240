"""Whole runs of training."""
