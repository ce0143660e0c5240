"""What weights in 8 bits change in the outputs of a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from nnet3_computation import OutputDifference
from numpy.typing import NDArray

from nnet3_runtime_c.calls import ConversionError
from nnet3_runtime_c.conversion import CSource

Array = NDArray[np.float32]

OPTIONS = "-std=c99", "-O2", "-DNNET3_MAIN"
"""Of the compiler."""


def compiler() -> str | None:
    """The C compiler of this machine, CC or cc; None if there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def rounding_error(
    source: CSource, rounded: CSource, utterances: Iterable[tuple[Array, Array | None]]
) -> OutputDifference:
    """Compiles and runs two programs, and returns how their outputs differ.

    Args:
        source: A network, as `nnet3.export_c` makes it.
        rounded: The same, with weights in 8 bits.
        utterances: For each its features, (frames, input_dim), and its i-vector, (ivector_dim,),
            if the network takes one.

    Raises:
        ConversionError: there is no C compiler, or it or a program fails, or there are no
            utterances.
    """
    found: list[list[Array]] = [[], []]
    command = compiler()
    if command is None:
        raise ConversionError("there is no C compiler here (CC, cc) to compare outputs with")
    with tempfile.TemporaryDirectory() as name:
        programs = []
        for number, each in enumerate((source, rounded)):
            folder = Path(name, str(number))
            folder.mkdir()
            each.write(folder)
            program = folder / each.name
            _run([command, *OPTIONS, f"{program}.c", "-o", str(program), "-lm"], b"")
            weights = [] if each.weights is None else [f"{program}.weights"]
            programs.append([str(program), *weights])
        for features, ivector in utterances:
            data = b"".join(_inputs(source, features, ivector))
            for run, outputs in zip(programs, found, strict=True):
                columns = source.calls[0][1]["output"][1]
                outputs.append(np.frombuffer(_run(run, data), "<f4").reshape(-1, columns))
    if not found[0]:
        raise ConversionError("there are no utterances to compare the outputs of")
    return OutputDifference.between(*map(np.concatenate, found))


def _run(command: Sequence[str], data: bytes) -> bytes:
    """What a program writes to its standard output, given this standard input."""
    try:
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", b"") or b"").decode(errors="replace").strip()
        raise ConversionError(f"'{command[0]}' failed: {said or error}") from error


def _inputs(source: CSource, features: Array, ivector: Array | None) -> Iterator[bytes]:
    """What the calls for an utterance read; its first and last frames are repeated."""
    left, chunk = (
        int(source.properties[f"nnet3.{name}"]) for name in ("left_context", "frames_per_chunk")
    )
    calls: Sequence[dict[str, tuple[int, int]]] = [dict(inputs) for inputs, _ in source.calls]
    number = begin = 0
    late = calls[0]["input"][0] - chunk if len(calls) > 1 else 0  # outputs of a stream lag behind
    while begin < len(features) + late:
        inputs = calls[min(number, len(calls) - 1)]
        rows = inputs["input"][0]
        for name, (count, _) in inputs.items():
            if name == "input":
                times = np.arange(begin - left, begin - left + rows)
                yield features[times.clip(0, len(features) - 1)].astype("<f4").tobytes()
            elif ivector is not None:
                yield np.tile(ivector, (count, 1)).astype("<f4").tobytes()
        number += 1
        begin += rows if len(calls) > 1 else chunk or rows
