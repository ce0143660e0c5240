"""The errors of this package; all derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors.errors import Nnet3Error


class RequestError(Nnet3Error):
    """A computation request is malformed, or does not fit the network it is made for."""
