"""Passes on commands that name rows: fewer and shorter lists of rows."""
