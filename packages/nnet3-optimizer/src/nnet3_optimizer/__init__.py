"""Analyse, check and improve compiled Kaldi nnet3 computations."""

__version__ = "0.1.0"
