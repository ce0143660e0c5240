"""The error of this package."""

from nnet3_descriptors import Nnet3Error


class ConformanceError(Nnet3Error):
    """A folder of cases, a reference or a runtime cannot be used."""
