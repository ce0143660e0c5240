"""Stage 5, with nnet3-runtime-cuda: the computation runs on the inputs of a case."""

import sys
from pathlib import Path

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import NnetComputer


def main(arrays: str, folder: str) -> None:
    """Read FOLDER/network, FOLDER/optimized and the inputs; write FOLDER/outputs.npz."""
    nnet = Nnet.load(Path(folder, "network"))
    computation = NnetComputation.load(Path(folder, "optimized"))
    with np.load(arrays) as archive:
        inputs = {
            name.removeprefix("input/"): archive[name]
            for name in archive.files
            if name.startswith("input/")
        }
    outputs = NnetComputer(nnet, computation).forward(inputs)
    np.savez(Path(folder, "outputs.npz"), **outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
