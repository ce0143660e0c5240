"""Transition models made and estimated; nnet3_speech.hmm reads them, and the trees."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.hmm.transition_models import TrainedTransitions as TrainedTransitions
    from nnet3_training.hmm.transition_models import TransitionTraining as TransitionTraining
    from nnet3_training.hmm.transition_models import check_topology as check_topology
    from nnet3_training.hmm.transition_models import (
        initial_transition_model as initial_transition_model,
    )
    from nnet3_training.hmm.transition_models import read_hmm_topology as read_hmm_topology
    from nnet3_training.hmm.transition_models import train_transitions as train_transitions
else:
    __getattr__, __dir__ = on_first_use(__name__)
