"""Whole utterances: cutting, computing and scoring them, on several threads."""
