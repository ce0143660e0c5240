"""The subject of the checks of this package: a computation with its whole analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs
from nnet3_compiler import NnetComputation
from nnet3_compiler.checks import Subject as RunningSubject

from nnet3_optimizer.analysis import Analysis

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


@attrs.frozen(kw_only=True, eq=False)
class Subject(RunningSubject):
    """A computation under check.

    Attributes:
        analysis: The whole analysis of its commands.
    """

    analysis: Analysis

    @classmethod
    def of(cls, nnet: Nnet, computation: NnetComputation) -> Self:
        """Returns a computation as a subject."""
        return cls(nnet=nnet, computation=computation, analysis=Analysis.of(nnet, computation))
