"""The errors of this package; all derive from Nnet3Error (a ValueError)."""

from nnet3_descriptors import Nnet3Error


class ExportError(Nnet3Error):
    """A computation that standard operators cannot express; the message names each reason."""


class RunError(Nnet3Error):
    """Something given to a computation does not fit it."""
