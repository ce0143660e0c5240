"""Runs the C program of a stream for a million frames beside Model.stream, and compares all rows.

`python tests/c_stream.py NETWORK FRAMES` prints the largest difference and the memory of the
program, early and at the end. Frames are random; NETWORK is digits, the network of the example, or
lstm, a small one with random parameters, whose state lasts. C_TARGET=wasm32 in the environment
takes another target of `c_targets`; the memory is that of the process which runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import nnet3
import numpy as np
import package_tests  # noqa: F401  the helpers of the packages
from c_targets import CHOSEN
from nnet3_descriptors import parse_config
from reference_cases import DIGITS_EXAMPLE

CHUNK = 100
LSTM = """
input-node name=input dim=23
component name=gates type=NaturalGradientAffineComponent input-dim=39 output-dim=64 param-stddev=0.5
component name=cell type=LstmNonlinearityComponent cell-dim=16
component-node name=gates component=gates input=Append(input, IfDefined(Offset(m, -1)))
component-node name=cell component=cell input=Append(gates, IfDefined(Offset(c, -1)))
dim-range-node name=c input-node=cell dim-offset=0 dim=16
dim-range-node name=m input-node=cell dim-offset=16 dim=16
output-node name=output input=m
"""
NETWORKS = ("digits", "lstm")


@attrs.frozen
class Compared:
    """What came of a stream.

    Attributes:
        rows: The rows of its output.
        largest: The largest difference of an element.
        before, after: The resident memory of the program in KiB, after its tenth chunk and
            near the end.
    """

    rows: int
    largest: float
    before: int
    after: int


def chunks(frames: int) -> Iterator[np.ndarray]:
    """Frames, (CHUNK, 23) at a time."""
    rng = np.random.default_rng(0)
    for _ in range(frames // CHUNK):
        yield rng.standard_normal((CHUNK, 23), np.float32)


def compare(network: str, frames: int, folder: Path) -> Compared:
    """Builds the program in a folder, and compares it with Model.stream."""
    if network == "digits":
        model = nnet3.load(DIGITS_EXAMPLE / "final.raw")
    else:
        model = nnet3.Model(parse_config(LSTM, rng=np.random.default_rng(0)))
    source = nnet3.export_c(model, frames=CHUNK, name="net", stream=True)
    source.write(folder)
    built = CHOSEN.build(folder, "net", "-O2", *["-march=native"] * (CHOSEN.runner == ()))
    command = [*(CHOSEN.runner or ()), str(built)]
    [line] = [each for each in source.header.splitlines() if "nnet3.left_context:" in each]
    first = next(chunks(CHUNK))[:1]

    with subprocess.Popen(
        command, cwd=folder, stdin=-1, stdout=-1, stderr=-3, bufsize=0
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        given, taken = program.stdin, program.stdout

        def feed() -> None:
            given.write(np.repeat(first, int(line.split()[-1]), axis=0).tobytes())
            for rows in chunks(frames):
                given.write(rows.tobytes())
            given.close()

        threading.Thread(target=feed, daemon=True).start()
        stream = model.stream(frames_per_chunk=CHUNK)
        count, largest, memory = 0, 0.0, []
        for number, rows in enumerate(chunks(frames)):
            expected = stream.push(rows)
            data = b""
            while len(data) < expected.nbytes and (more := taken.read(expected.nbytes - len(data))):
                data += more
            found = np.frombuffer(data, np.float32).reshape(expected.shape)
            largest = max(largest, float(np.abs(found - expected).max(initial=0.0)))
            count += len(expected)
            if number in (10, frames // CHUNK - 30):  # before the rest fits into the pipe
                memory.append(_resident(program.pid))
        assert taken.read() == b""
    assert np.isfinite(largest)
    return Compared(count, largest, *memory)


def _resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return int(status.split("VmRSS:")[1].split()[0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(compare(sys.argv[1], int(sys.argv[2]), Path(name)))
