"""The errors of this package; all derive from Nnet3Error (a ValueError)."""

from __future__ import annotations

from nnet3_descriptors.errors import Nnet3Error


class RequestError(Nnet3Error):
    """A computation request is malformed, or does not fit the network it is made for."""


class ContextError(Nnet3Error):
    """The left and right context of a network is not defined, or could not be found."""


class NotComputableError(Nnet3Error):
    """Some requested output cannot be computed from what is given."""


class UnboundedComputationError(NotComputableError):
    """The outputs need infinitely many rows: a recurrence can always be followed one step further.

    Attributes:
        nodes: names of the nodes of the recurrence.
    """

    def __init__(self, nodes: list[str]) -> None:
        self.nodes = tuple(nodes)
        super().__init__(
            f"the recurrence through nodes {', '.join(map(repr, nodes[:6]))}"
            f"{', ...' if len(nodes) > 6 else ''} has no end: each of its steps can be computed "
            f"and needs one more"
        )
