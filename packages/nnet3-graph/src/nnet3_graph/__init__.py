"""What a Kaldi nnet3 network has to compute for a request: the computation graph."""

__version__ = "0.1.0"
