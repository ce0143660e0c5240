"""The error of this package; it derives from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error


class TableError(Nnet3Error):
    """An archive or script file cannot be opened, read or written."""
