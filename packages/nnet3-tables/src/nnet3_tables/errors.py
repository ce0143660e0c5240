"""The error of this package, and its warning."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error, escaped


class TableError(Nnet3Error):
    """An archive or script file cannot be opened, read or written."""


class TableWarning(UserWarning):
    """A part of a table is left out, as the option `p` in its name allows."""

    def __str__(self) -> str:
        return escaped(super().__str__())
