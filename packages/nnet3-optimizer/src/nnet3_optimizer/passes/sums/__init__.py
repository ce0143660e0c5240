"""Passes on sums: what they begin with, and sums over times in parts."""
