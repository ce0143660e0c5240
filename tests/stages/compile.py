"""Stage 4, with nnet3-compiler: network, request and graph become a serialized computation."""

import sys
from pathlib import Path

from nnet3_compiler import Compiler
from nnet3_descriptors import Nnet
from nnet3_graph import ComputationGraph, ComputationRequest


def main(folder: str) -> None:
    """Read FOLDER/network, FOLDER/request and FOLDER/graph; write FOLDER/compiled."""
    nnet = Nnet.load(Path(folder, "network"))
    request = ComputationRequest.load(Path(folder, "request"))
    graph = ComputationGraph.load(Path(folder, "graph"), nnet)
    computation = Compiler(nnet, request, graph).create_computation()
    computation.save(Path(folder, "compiled"))


if __name__ == "__main__":
    main(*sys.argv[1:])
