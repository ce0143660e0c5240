"""Stage 3, with nnet3-graph: the rows that the request depends on become a serialized graph."""

import sys
from pathlib import Path

from nnet3_descriptors import Nnet
from nnet3_graph import ComputationRequest, build_computation_graph


def main(folder: str) -> None:
    """Read FOLDER/network and FOLDER/request; write FOLDER/graph."""
    nnet = Nnet.load(Path(folder, "network"))
    request = ComputationRequest.load(Path(folder, "request"))
    build_computation_graph(nnet, request).save(Path(folder, "graph"))


if __name__ == "__main__":
    main(*sys.argv[1:])
