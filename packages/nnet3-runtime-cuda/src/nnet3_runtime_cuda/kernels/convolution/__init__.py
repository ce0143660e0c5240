"""Convolution and max-pooling."""
