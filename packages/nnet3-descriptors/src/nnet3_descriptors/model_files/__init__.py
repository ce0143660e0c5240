"""Networks and acoustic models in Kaldi's files."""

from nnet3_descriptors.model_files.transition_model import (
    HmmState,
    HmmTopology,
    TransitionModel,
    read_topology,
    read_transition_model,
    write_transition_model,
)

__all__ = [
    "HmmState",
    "HmmTopology",
    "TransitionModel",
    "read_topology",
    "read_transition_model",
    "write_transition_model",
]
