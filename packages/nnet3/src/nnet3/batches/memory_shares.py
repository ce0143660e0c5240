"""The division of the memory of a run over many utterances."""

from __future__ import annotations

import attrs


@attrs.frozen
class MemoryShares:
    """Shares of the memory that the option `memory` allows, in bytes.

    It does not count the network, its parameters in the layout of products, and compiled
    computations.

    Attributes:
        total: All of it.
    """

    total: int

    @property
    def waiting(self) -> int:
        """Features and outputs of utterances that were read and not yet taken: a quarter.

        The oldest of them and the newest one are not counted, since they must be in memory.
        """
        return self.total // 4

    @property
    def computers(self) -> int:
        """Matrices and scratch of all computers, running and idle.

        Running computers may take more, if a single chunk does or there are more than six threads;
        then no idle one is kept.
        """
        return self.total - self.waiting

    @property
    def minibatch(self) -> int:
        """Matrices of the minibatch that a thread computes: an eighth.

        It does not depend on the number of threads, so outputs do not either.
        """
        return self.total // 8
