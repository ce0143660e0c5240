"""Which commands computed what differs: for messages, and only when two computations differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from nnet3_compiler.commands import SCHEMA
from nnet3_compiler.computation import NnetComputation

from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def explained(
    error: EquivalenceError,
    nnet: Nnet,
    computations: tuple[NnetComputation, NnetComputation],
    sequences: int,
    segments: int | None,
) -> EquivalenceError:
    return error
