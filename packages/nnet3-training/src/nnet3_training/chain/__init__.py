"""'Chain' models: trained by lattice-free MMI (Povey et al., Interspeech 2016).

fsts/                                     FSTs as arrays, their files, operations
graphs/                                   making the denominator and supervisions
supervision.py                            supervisions, and their files
examples.py, utterance_examples.py        examples: their files, changes; how they are made
denominator.py, numerator.py              the sums of LF-MMI
options.py, objective.py                  the objective, also for a Trainer
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.chain.denominator import DenominatorResult as DenominatorResult
    from nnet3_training.chain.examples import example_bytes as example_bytes
    from nnet3_training.chain.examples import read_chain_example as read_chain_example
    from nnet3_training.chain.examples import with_posteriors as with_posteriors
    from nnet3_training.chain.fsts.files import fst_bytes as fst_bytes
    from nnet3_training.chain.fsts.files import read_table_fst as read_table_fst
    from nnet3_training.chain.numerator import frame_posteriors as frame_posteriors
    from nnet3_training.chain.supervision import read_supervision as read_supervision
    from nnet3_training.chain.supervision import supervision_bytes as supervision_bytes
    from nnet3_training.chain.utterance_examples import ChainExampleMaker as ChainExampleMaker
    from nnet3_training.chain.utterance_examples import whole_example as whole_example
    from nnet3_training.egs.changes import with_context as with_context
    from nnet3_training.egs.changes import with_output_name as with_output_name
    from nnet3_training.egs.changes import with_weight as with_weight
else:
    __getattr__, __dir__ = on_first_use(__name__)
