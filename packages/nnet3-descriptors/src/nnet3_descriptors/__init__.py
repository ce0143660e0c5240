"""Read, describe, edit and write Kaldi nnet3 networks in Python."""

__version__ = "0.1.0"
