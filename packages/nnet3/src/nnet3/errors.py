"""The error of this package; it is an `Nnet3Error`."""

from nnet3_descriptors import Nnet3Error


class CacheError(Nnet3Error):
    """A saved cache belongs to another network, or to other options."""
