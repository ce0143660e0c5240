"""Passes on sums: the term that a sum begins with, and sums over time in parts."""
