"""Hints for misspelt names."""

from nnet3_descriptors.similar_names.similarity import hint, most_similar

__all__ = ["hint", "most_similar"]
