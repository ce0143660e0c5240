"""Normalisation, and the softmax."""
