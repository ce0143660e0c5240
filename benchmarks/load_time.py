"""How long a binary model of 20 million parameters takes to load.

    python benchmarks/load_time.py

The comparison is with reading the bytes of the file and one `astype` copy of them as float32. The
last row also reads every value, since arrays of a mapped file are read on first use. Times are
wall-clock milliseconds, the best of several runs, with the file in the system's cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from nnet3_descriptors import parse_config, read_nnet, write_nnet

LAYERS = 10
DIM = 1414
RUNS = 7


def config() -> str:
    """A network of affine layers."""
    lines = [f"input-node name=input dim={DIM}"]
    source = "input"
    for layer in range(LAYERS):
        name = f"affine{layer}"
        lines += [
            f"component name={name} type=NaturalGradientAffineComponent "
            f"input-dim={DIM} output-dim={DIM}",
            f"component-node name={name} component={name} input={source}",
        ]
        source = name
    return "\n".join([*lines, f"output-node name=output input={source}"])


def best_ms(function: Callable[[], object]) -> float:
    """Returns the smallest wall-clock time of several runs, in milliseconds."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times) * 1000


def read_and_copy(path: Path) -> None:
    """Reads the bytes, and copies them once as numbers."""
    data = path.read_bytes()
    np.frombuffer(data, dtype=np.float32, count=len(data) // 4).astype(np.float32)


def load_and_look(path: Path) -> None:
    """Loads the model and copies every parameter."""
    for array in read_nnet(path).state_dict().values():
        array.copy()


def main() -> None:
    """Prints the times and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.raw"
        nnet = parse_config(config(), rng=np.random.default_rng(1))
        write_nnet(nnet, path)
        bar = best_ms(lambda: read_and_copy(path))
        print(f"{nnet.num_parameters / 1e6:.1f} million parameters, {path.stat().st_size} bytes")
        print(f"read the bytes, one astype   {bar:6.1f} ms")
        loaded = best_ms(lambda: read_nnet(path))
        print(f"read_nnet                    {loaded:6.1f} ms  {loaded / bar:5.2f}")
        looked_at = best_ms(lambda: load_and_look(path))
        print(f"read_nnet, all arrays read   {looked_at:6.1f} ms  {looked_at / bar:5.2f}")


if __name__ == "__main__":
    main()
