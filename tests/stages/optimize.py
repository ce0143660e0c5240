"""Stage 4, with nnet3-optimizer: the computation is checked, improved and serialized again."""

import sys
from pathlib import Path

from nnet3_computation import NnetComputation
from nnet3_computation.memory import with_memory_plan
from nnet3_descriptors import Nnet
from nnet3_optimizer import check_computation, optimize


def main(folder: str) -> None:
    """Read FOLDER/network and FOLDER/compiled; write FOLDER/optimized, with its memory plan."""
    nnet = Nnet.load(Path(folder, "network"))
    computation = NnetComputation.load(Path(folder, "compiled"))
    check_computation(nnet, computation)
    with_memory_plan(optimize(nnet, computation)).save(Path(folder, "optimized"))


if __name__ == "__main__":
    main(*sys.argv[1:])
