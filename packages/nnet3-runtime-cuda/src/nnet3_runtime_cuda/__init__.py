"""Run and train compiled Kaldi nnet3 computations with NumPy or CuPy."""

__version__ = "0.1.0"
