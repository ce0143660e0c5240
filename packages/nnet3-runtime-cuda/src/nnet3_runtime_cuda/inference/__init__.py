"""Whole utterances: cut up, computed, scored, on several threads."""
