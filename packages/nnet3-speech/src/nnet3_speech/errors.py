"""The error of this package."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error


class SpeechError(Nnet3Error):
    """A recording, a config file or a file of a speech model that cannot be used."""
