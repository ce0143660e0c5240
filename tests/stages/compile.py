"""Stage 3, with nnet3-compiler: network and request become a serialized computation."""

import sys
from pathlib import Path

from nnet3_compiler import Compiler
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet


def main(folder: str) -> None:
    """Read FOLDER/network and FOLDER/request; write FOLDER/compiled."""
    nnet = Nnet.load(Path(folder, "network"))
    request = ComputationRequest.load(Path(folder, "request"))
    computation = Compiler(nnet, request).create_computation()
    computation.save(Path(folder, "compiled"))


if __name__ == "__main__":
    main(*sys.argv[1:])
