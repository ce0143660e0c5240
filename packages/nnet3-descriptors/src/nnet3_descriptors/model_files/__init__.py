"""Networks and acoustic models in Kaldi's files."""

from nnet3_descriptors.model_files.transition_model import (
    HmmState,
    TransitionModel,
    read_transition_model,
    write_transition_model,
)

__all__ = [
    "HmmState",
    "TransitionModel",
    "read_transition_model",
    "write_transition_model",
]
