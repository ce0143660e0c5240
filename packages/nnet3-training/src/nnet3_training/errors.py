"""The errors of this package, which derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error


class ExampleError(Nnet3Error):
    """A training example does not make sense, or does not fit the network."""


class WorkerError(Nnet3Error):
    """A task could not be done, because the processes that worked on it died."""


class RecipeError(Nnet3Error):
    """A folder holds another training run, or no data to train on."""
