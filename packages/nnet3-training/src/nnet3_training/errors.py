"""The errors of this package, which derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error


class ExampleError(Nnet3Error):
    """A training example does not make sense, or does not fit the network."""


class HmmError(Nnet3Error):
    """A tree or a transition model does not make sense, or the two do not fit each other."""
