"""FSTs in the memory of OpenFst, which removes epsilons, composes, determinizes and minimizes.

`kaldifst` has these operations, most of which change an FST in place.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nnet3_training.chain.fsts.files import read_fst, vector_bytes
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.errors import ExampleError

if TYPE_CHECKING:
    from kaldifst import StdVectorFst

_FILE = "fst"


def held(fst: Fst) -> StdVectorFst:
    """Gives an FST to OpenFst, in a file, which takes less time than arc by arc.

    Raises:
        ExampleError: OpenFst does not take it.
    """
    from kaldifst import StdVectorFst  # takes a while, and only making graphs and examples needs it

    with _file() as path:
        Path(path).write_bytes(vector_bytes(fst))
        machine = StdVectorFst.read(path)
    if machine is None:
        raise ExampleError("OpenFst cannot read an FST that is to be changed")
    return machine


def fst_of(machine: StdVectorFst) -> Fst:
    """Takes an FST from OpenFst.

    Raises:
        ExampleError: OpenFst does not give it.
    """
    with _file() as path:
        if not machine.write(path):
            raise ExampleError("OpenFst cannot write an FST that was changed")
        return read_fst(path)


def without_epsilons(fst: Fst) -> Fst:
    """The FST without arcs that read and write nothing."""
    from kaldifst import rmepsilon

    machine = held(fst)
    rmepsilon(machine)
    return fst_of(machine)


def composed(machine: StdVectorFst, other: StdVectorFst) -> StdVectorFst:
    """The sequences of labels that both accept, with the costs of both.

    Args:
        machine: An acceptor.
        other: An acceptor whose arcs are sorted, without epsilons.
    """
    from kaldifst import StdVectorFst, compose

    return StdVectorFst(compose(machine, other, match_side="right"))


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
