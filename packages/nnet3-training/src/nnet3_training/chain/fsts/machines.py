"""FSTs inside OpenFst, which removes epsilons, composes, determinizes and minimizes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nnet3_training.chain.fsts.files import read_fst, vector_bytes
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.errors import ExampleError

if TYPE_CHECKING:
    import kaldifst

_FILE = "fst"


class Machine:
    """An FST in the memory of OpenFst; methods change it and return it."""

    def __init__(self, held: kaldifst.StdVectorFst) -> None:
        """Wraps an object of OpenFst."""
        self._held = held

    @classmethod
    def of(cls, fst: Fst) -> Self:
        """Gives an FST to OpenFst, in a file, which takes less time than arc by arc.

        Raises:
            ExampleError: OpenFst does not take it.
        """
        with _file() as path:
            Path(path).write_bytes(vector_bytes(fst))
            held = _library().StdVectorFst.read(path)
        if held is None:
            raise ExampleError("OpenFst cannot read an FST that is to be changed")
        return cls(held)

    def fst(self) -> Fst:
        """Takes the FST from OpenFst.

        Raises:
            ExampleError: OpenFst does not give it.
        """
        with _file() as path:
            if not self._held.write(path):
                raise ExampleError("OpenFst cannot write an FST that was changed")
            return read_fst(path)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return int(self._held.num_states)

    def without_epsilons(self) -> Self:
        """Removes arcs that read and write nothing."""
        _library().rmepsilon(self._held)
        return self

    def reversed(self) -> Self:
        """Reverses all arcs; a new start leads to the states that were final."""
        self._held = _library().reverse(self._held)
        return self

    def sorted(self) -> Self:
        """Sorts the arcs of each state by the labels that they read."""
        _library().arcsort(self._held, "ilabel")
        return self

    def determinized(self, max_states: int) -> Self:
        """Leaves the cheapest path for each sequence of labels; stops at `max_states` states."""
        self._held = _library().determinize(self._held, nstate=max_states)
        return self

    def determinized_star(self, max_states: int) -> Self:
        """Removes epsilons, and leaves the cheapest path for each sequence of labels.

        `determinized` rounds the costs that it carries along a path; this does not. The name is
        Kaldi's.

        Raises:
            ExampleError: The result has more than `max_states` states.
        """
        try:
            _library().determinize_star(self._held, max_states=max_states)
        except RuntimeError as error:
            raise ExampleError(f"a deterministic FST has more than {max_states} states") from error
        return self

    def minimized(self) -> Self:
        """Minimizes a deterministic FST."""
        _library().minimize(self._held)
        return self

    def composed(self, other: Machine) -> Self:
        """Keeps the sequences of labels that another machine accepts, too, and adds its costs.

        Args:
            other: An acceptor whose arcs are sorted, without epsilons.
        """
        composed: Any = _library().compose(self._held, other._held, match_side="right")
        self._held = _library().StdVectorFst(composed)
        return self


@contextlib.contextmanager
def _file() -> Iterator[str]:
    """A temporary file; in memory where the system has such files, which is faster."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(_FILE)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / _FILE)


def _library() -> Any:
    import kaldifst  # takes a while, and only making graphs and examples needs it

    return kaldifst
