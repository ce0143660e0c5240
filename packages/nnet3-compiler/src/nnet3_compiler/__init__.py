"""Compile a Kaldi nnet3 network and a request into a program of matrix commands."""

__version__ = "0.1.0"
