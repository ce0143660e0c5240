"""The errors of this package, which derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors import Nnet3Error


class SpeechError(Nnet3Error):
    """A recording, a config file or a file of a speech model that cannot be used."""


class HmmError(SpeechError):
    """A tree or a transition model does not make sense, or the two do not fit each other."""
