"""'Chain' models: trained by lattice-free MMI (Povey et al., Interspeech 2016).

fsts/                                                     FSTs as arrays, their files, operations
graphs/                                                   making the denominator and supervisions
supervision.py, supervision_files.py, example_files.py    supervisions and examples
example_changes.py                                        examples moved, weighted
options.py, denominator.py, numerator.py, objective.py    the objective
training.py                                               the objective of a Trainer
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.chain.denominator import DenominatorResult as DenominatorResult
    from nnet3_training.chain.example_changes import frame_step as frame_step
    from nnet3_training.chain.example_changes import shifted as shifted
    from nnet3_training.chain.example_changes import with_posteriors as with_posteriors
    from nnet3_training.chain.example_changes import with_weight as with_weight
    from nnet3_training.chain.example_files import example_bytes as example_bytes
    from nnet3_training.chain.example_files import read_chain_example as read_chain_example
    from nnet3_training.chain.fsts.files import fst_bytes as fst_bytes
    from nnet3_training.chain.fsts.files import read_table_fst as read_table_fst
    from nnet3_training.chain.numerator import frame_posteriors as frame_posteriors
    from nnet3_training.chain.supervision_files import read_supervision as read_supervision
    from nnet3_training.chain.supervision_files import supervision_bytes as supervision_bytes
    from nnet3_training.chain.utterance_examples import ChainExampleMaker as ChainExampleMaker
    from nnet3_training.chain.utterance_examples import ChainUtterance as ChainUtterance
    from nnet3_training.chain.utterance_examples import whole_example as whole_example
    from nnet3_training.egs.changes import with_context as with_context
    from nnet3_training.egs.changes import with_output_name as with_output_name
else:
    __getattr__, __dir__ = on_first_use(__name__)
