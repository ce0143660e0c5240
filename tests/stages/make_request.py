"""Stage 2, with nnet3-graph: the wanted outputs become a request that the network can compute."""

import json
import sys
from pathlib import Path

from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet
from nnet3_graph import build_computation_graph


def main(case: str, folder: str) -> None:
    """Read FOLDER/network and the request of a case.json; write FOLDER/request."""
    wanted = json.loads(Path(case).read_text(encoding="utf-8"))["request"]
    request = ComputationRequest(
        inputs=tuple(IoSpecification(**io) for io in wanted["inputs"]),
        outputs=tuple(IoSpecification(**io) for io in wanted["outputs"]),
        need_model_derivative=wanted["need_model_derivative"],
        store_component_stats=wanted["store_component_stats"],
    )
    build_computation_graph(Nnet.load(Path(folder, "network")), request)
    request.save(Path(folder, "request"))


if __name__ == "__main__":
    main(*sys.argv[1:])
