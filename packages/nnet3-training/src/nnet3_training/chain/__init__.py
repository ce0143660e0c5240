"""'Chain' models: trained by lattice-free MMI (Povey et al., Interspeech 2016).

fsts/                                                     FSTs as arrays, their files, operations
graphs/                                                   the denominator, and supervisions, made
supervision.py, supervision_files.py, example_files.py    what is trained on
example_changes.py                                        examples moved, weighted
denominator.py, numerator.py, objective.py                what is maximised
training.py                                               as the objective of a Trainer
"""

from nnet3_training.chain.example_changes import frame_step, shifted, with_weight
from nnet3_training.chain.example_files import example_bytes, read_chain_example
from nnet3_training.chain.supervision_files import read_supervision, supervision_bytes
from nnet3_training.chain.utterance_examples import ChainExampleMaker, ChainUtterance
from nnet3_training.egs.changes import with_context, with_output_name

__all__ = [
    "ChainExampleMaker",
    "ChainUtterance",
    "example_bytes",
    "frame_step",
    "read_chain_example",
    "read_supervision",
    "shifted",
    "supervision_bytes",
    "with_context",
    "with_output_name",
    "with_weight",
]
