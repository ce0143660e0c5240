"""Convolutions, splicing and pooling: over time, or over the axes that columns stand for."""

from nnet3_runtime_reference.formulas.convolution import convolution, pooling, splicing

__all__ = ["convolution", "pooling", "splicing"]
