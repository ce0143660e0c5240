"""The errors of this package; all derive from Nnet3Error (a ValueError)."""

from nnet3_descriptors import Nnet3Error


class RunError(Nnet3Error):
    """Something given to a computation does not fit it."""


class UnsupportedComponentError(Nnet3Error):
    """A network holds a component type that has no formula here."""
