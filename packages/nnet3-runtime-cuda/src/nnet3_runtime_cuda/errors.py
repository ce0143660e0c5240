"""The errors of this package, all from Nnet3Error (a ValueError); the limit of threads."""

from __future__ import annotations

from numbers import Integral

from nnet3_descriptors import Nnet3Error


class RunError(Nnet3Error):
    """Something given to a computation, a model or a tool does not fit it."""


class UnsupportedComponentError(Nnet3Error):
    """A network holds a component type that has no arithmetic here."""


class DeviceError(Nnet3Error):
    """The device does not exist, or the library that drives it is missing."""


class DeviceMemoryError(DeviceError):
    """A device has too little memory."""


class TrainingError(Nnet3Error):
    """A setting of training is not valid, or training has diverged."""


MOST_THREADS = 256
"""The most threads: with many more, the data for each pair of threads would fill the memory."""


def check_number_of_threads(value: object, error: type[Nnet3Error]) -> None:
    """Raises an error of this type unless a value is an integer from 1 to 256, or None."""
    if value is not None and not (isinstance(value, Integral) and 1 <= int(value) <= MOST_THREADS):
        raise error(
            f"the number of threads must be an integer from 1 to {MOST_THREADS}, or None "
            f"(got {value!r})"
        )
