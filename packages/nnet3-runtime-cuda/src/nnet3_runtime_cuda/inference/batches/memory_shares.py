"""What of the memory of a run over many utterances is for what: the one place that divides it."""

from __future__ import annotations

import attrs


@attrs.frozen
class MemoryShares:
    """Shares of the memory that the option `memory` allows, in bytes.

    The network, its parameters in the layout of their products, and compiled computations are not
    in it.

    Attributes:
        total: All of it.
    """

    total: int

    @property
    def waiting(self) -> int:
        """Features and outputs of utterances that were read and not yet taken: a quarter.

        The oldest of them, and the one that was read last, come on top: they have to be there.
        """
        return self.total // 4

    @property
    def computers(self) -> int:
        """Matrices and scratch of all computers, of those that run and of those that wait.

        Computers that run may take more, if a single chunk does, or if there are more than six
        threads; then none is kept beside them.
        """
        return self.total - self.waiting

    @property
    def minibatch(self) -> int:
        """Matrices of the minibatch that a thread computes: an eighth.

        It does not depend on the number of threads, as outputs do not.
        """
        return self.total // 8
