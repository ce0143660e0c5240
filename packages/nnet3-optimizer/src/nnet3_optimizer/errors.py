"""Errors of this package; all are `Nnet3Error`s."""

from __future__ import annotations

from nnet3_computation import ComputationError


class EquivalenceError(ComputationError):
    """Two computations that do not compute the same; raised by `verify_equivalent`.

    Attributes:
        what: The result that differs: the node of an output or input derivative, or the component
            of a model update or of statistics.
        segment: The segment at whose end an output differs; None for anything else.
        row, column: The first element that differs; None for anything but an output.
        commands: The positions of the calls, in the first and the second computation, that only
            one of them makes; empty for an output or input derivative.
    """

    def __init__(
        self,
        message: str,
        *,
        what: str,
        segment: int | None = None,
        row: int | None = None,
        column: int | None = None,
        commands: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    ) -> None:
        super().__init__(message)
        self.what = what
        self.segment = segment
        self.row = row
        self.column = column
        self.commands = commands


class PassError(ComputationError):
    """A pass whose result failed the checks or the proof of equivalence.

    Attributes:
        name: The name of the pass.
        before: The names of the passes that ran before it.
    """

    def __init__(self, message: str, *, name: str, before: tuple[str, ...]) -> None:
        super().__init__(message)
        self.name = name
        self.before = before
