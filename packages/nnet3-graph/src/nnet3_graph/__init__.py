"""What a Kaldi nnet3 network has to compute for a request: the computation graph."""

from nnet3_graph.errors import RequestError
from nnet3_graph.request import ComputationRequest, IoSpecification

__version__ = "0.1.0"

__all__ = [
    "ComputationRequest",
    "IoSpecification",
    "RequestError",
]
