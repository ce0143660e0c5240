"""The error of this package; it is an `Nnet3Error`."""

from nnet3_descriptors import Nnet3Error

FROM_A_CLONE = (
    "in a clone of the repository, 'uv build --all-packages --wheel --out-dir wheels', then 'pip "
    "install --find-links wheels {}'"
)
"""What to do where a package of the project is missing; they are on no index yet."""


class CacheError(Nnet3Error):
    """A saved cache belongs to another network, or to other options."""
