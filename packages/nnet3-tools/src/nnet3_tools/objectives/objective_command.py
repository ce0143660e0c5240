"""The kind of command that computes objectives on examples."""

from __future__ import annotations

from typing import ClassVar

from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import KaldiCommand


class ObjectiveCommand(KaldiCommand):
    """A command that accepts Kaldi's options for its optimizer, compiler and caches.

    They change how Kaldi computes, not the results; a training command handles some itself.
    """

    ignored: ClassVar[frozenset[str]] = OF_OBJECTIVES
