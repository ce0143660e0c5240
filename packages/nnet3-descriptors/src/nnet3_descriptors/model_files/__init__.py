"""Networks and acoustic models in Kaldi's files."""

from nnet3_descriptors.model_files.transition_model import HmmState as HmmState
from nnet3_descriptors.model_files.transition_model import HmmTopology as HmmTopology
from nnet3_descriptors.model_files.transition_model import TransitionModel as TransitionModel
from nnet3_descriptors.model_files.transition_model import read_topology as read_topology
from nnet3_descriptors.model_files.transition_model import (
    read_transition_model as read_transition_model,
)
from nnet3_descriptors.model_files.transition_model import (
    write_transition_model as write_transition_model,
)
