"""The error of this package."""

from nnet3_descriptors import Nnet3Error


class CompilationError(Nnet3Error):
    """A network and request for which no computation can be made."""
