"""Converted computations, compiled and called."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from nnet3_computation import AcceptInput, GotoLabel, NnetComputation, ProvideOutput
from nnet3_descriptors import Nnet
from nnet3_runtime_c import to_c

COMPILER = shutil.which(os.environ.get("CC", "cc"))
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
WITH_CBLAS = ("-DNNET3_CBLAS", str(Path(__file__).with_name("cblas.c")))
"""Options for products by a CBLAS, a plain one that checks what it is given."""

_FLOATS = ctypes.POINTER(ctypes.c_float)


def compiled(folder: Path, name: str, options: Sequence[str]) -> Path:
    """A library of NAME.c."""
    assert COMPILER is not None
    library = folder / f"{name}.so"
    command = [COMPILER, *STRICT, *options, "-shared", "-fPIC", f"{name}.c", "-o", str(library)]
    subprocess.run([*command, "-lm"], cwd=folder, check=True)
    return library


class CComputer:
    """Runs a computation by the C code of `to_c`."""

    def __init__(
        self,
        nnet: Nnet,
        computation: NnetComputation,
        *,
        options: Sequence[str] = ("-O1", "-march=native"),
        weights_in_source: bool = False,
        int8: bool = False,
    ) -> None:
        source = to_c(nnet, computation, name="net", weights_in_source=weights_in_source, int8=int8)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            source.write(folder)
            self._library = ctypes.CDLL(str(compiled(folder, "net", options)))
        arena = int(source.header.split("_ARENA ")[1].split()[0])
        self._state = ctypes.create_string_buffer(16 + 4 * arena + 64)
        self._weights = np.frombuffer(source.weights or b"", "<f4").copy()
        self._segments = segments_of(nnet, computation)
        commands = computation.commands
        last = commands[len(commands) - 1]
        label = last.label if isinstance(last, GotoLabel) else None
        self._loop = next((n for n, s in enumerate(self._segments) if s[0] == label), 0)
        self._inputs = list(dict.fromkeys(n for _, i, _ in self._segments for n in i))
        self._outputs = list(dict.fromkeys(n for _, _, o in self._segments for n in o))
        self._step = getattr(self._library, "net_forward", None) or self._library.net_step
        self.reset()

    def reset(self) -> None:
        """Begins with the first segment."""
        self._next = 0
        pointer = self._weights.ctypes.data_as(_FLOATS)
        self._library.net_init(self._state, *([pointer] if len(self._weights) else []))

    def forward(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the next segment."""
        _, accepted, provided = self._segments[self._next]
        self._next = self._next + 1 if self._next + 1 < len(self._segments) else self._loop
        given = {name: np.ascontiguousarray(inputs[name], np.float32) for name in accepted}
        found = {name: np.full(shape, np.nan, np.float32) for name, shape in provided.items()}
        arrays = [given.get(name) for name in self._inputs]
        arrays += [found.get(name) for name in self._outputs]
        self._step(
            self._state,
            *(None if each is None else each.ctypes.data_as(_FLOATS) for each in arrays),
        )
        return found


def segments_of(
    nnet: Nnet, computation: NnetComputation
) -> list[tuple[int, dict[str, tuple[int, int]], dict[str, tuple[int, int]]]]:
    """The first command, and the inputs and outputs, of each segment."""
    ends = [end + 1 for end in computation.segment_ends] or [len(computation.commands)]
    starts = [0, *ends[:-1]]
    sizes = computation.submatrices[:, [2, 4]].tolist()
    found = []
    for start, end in zip(starts, ends, strict=False):
        accepted, provided = (
            {
                nnet.nodes[c.node].name: tuple(sizes[c.matrix])
                for c in computation.commands[start:end]
                if isinstance(c, kind)
            }
            for kind in (AcceptInput, ProvideOutput)
        )
        found.append((start, accepted, provided))
    return found
