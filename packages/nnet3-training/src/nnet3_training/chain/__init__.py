"""'Chain' models: trained by lattice-free MMI (Povey et al., Interspeech 2016).

fsts/                                                     FSTs as arrays, and OpenFst's files
supervision.py, supervision_files.py, example_files.py    what is trained on
example_changes.py                                        examples moved, weighted
denominator.py, numerator.py, objective.py                what is maximised
training.py                                               as the objective of a Trainer
"""

from nnet3_training.chain.example_changes import frame_step, shifted, with_weight
from nnet3_training.chain.example_files import example_bytes, read_chain_example
from nnet3_training.egs.changes import with_context, with_output_name

__all__ = [
    "example_bytes",
    "frame_step",
    "read_chain_example",
    "shifted",
    "with_context",
    "with_output_name",
    "with_weight",
]
