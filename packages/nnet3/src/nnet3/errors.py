"""The error of this package, which is an `Nnet3Error`, and its warnings."""

import sys
import warnings
from types import FrameType

from nnet3_descriptors import Nnet3Error

FROM_A_CLONE = (
    "in a clone of the repository, 'uv build --all-packages --wheel --out-dir wheels', then 'pip "
    "install --find-links wheels {}'"
)
"""What to do where a package of the project is missing; they are on no index yet."""


_NOT_CALLERS = ("nnet3", "functools")
"""What warnings do not point at; functools calls a cached_property."""


class CacheError(Nnet3Error):
    """A saved cache belongs to another network, or to other options."""


def warn(message: str) -> None:
    """Warns at the line, outside this package, that called it."""
    level = 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_CALLERS:
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)
