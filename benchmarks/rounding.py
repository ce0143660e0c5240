"""Rounding errors of the benchmark networks in float32, with tiles and with direct sums.

    OPENBLAS_NUM_THREADS=1 python benchmarks/rounding.py
    OPENBLAS_NUM_THREADS=1 NNET3_PANELS=0 python benchmarks/rounding.py

Both precisions run the same values of eight sequences; float64 uses direct sums. "Output" is the
largest difference relative to the largest output. "Gradient" is the norm of the difference of the
gradients (without natural gradient), relative to the norm of the gradient.
"""

from __future__ import annotations

import attrs
import numpy as np
from networks import BENCHMARKS
from nnet3 import CachingCompiler
from nnet3_computation import NnetComputation
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cpu.products import TILES
from workload import Workload, chosen, flat

HEADS = "network", "sums", "output, inference", "output, training", "gradient"
ROW = "| {:9s} | {:6s} | {:>17s} | {:>16s} | {:>8s} |"
SUMS = {"tiles": True, "direct": False}


@attrs.frozen
class Values:
    """The results of a run.

    Attributes:
        output: (rows, columns).
        gradient: (parameters,); zeros in inference.
    """

    output: np.ndarray
    gradient: np.ndarray

    def errors(self, exact: Values) -> list[float]:
        """The errors of the output and, in training, of the gradient."""
        output = np.abs(self.output - exact.output).max() / np.abs(exact.output).max()
        gradient = np.linalg.norm(self.gradient - exact.gradient)
        norm = np.linalg.norm(exact.gradient)
        return [output, gradient / norm] if norm else [output]


def values(work: Workload, computation: NnetComputation, dtype: type, *, by_tiles: bool) -> Values:
    """The results of a run in this precision."""
    with chosen(TILES, "1" if by_tiles else "0"):
        device = DeviceNnet(work.nnet, trainable=work.is_training, dtype=dtype, threads=1)
        computer = NnetComputer(device, computation)
    output = computer.forward(flat(work.inputs))["output"].astype(np.float64)
    if not work.is_training:
        return Values(output, np.zeros(1))
    computer.backward(flat(work.derivatives))
    return Values(output, device.direction.astype(np.float64))


def main() -> None:
    """Prints the table."""
    print(ROW.format(*HEADS))
    print("|---" * len(HEADS) + "|")
    for name in BENCHMARKS:
        errors: dict[str, list[float]] = {each: [] for each in SUMS}
        for mode in ("infer", "train"):
            work = Workload.make(name, mode, 8)
            computation = CachingCompiler(work.nnet).compile(work.request)
            exact = values(work, computation, np.float64, by_tiles=False)
            for each, by_tiles in SUMS.items():
                found = values(work, computation, np.float32, by_tiles=by_tiles)
                errors[each] += found.errors(exact)
        for each in SUMS:
            print(ROW.format(name, each, *(f"{error:.1e}" for error in errors[each])), flush=True)


if __name__ == "__main__":
    main()
