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
    from nnet3_training.chain.denominator import DenominatorResult
    from nnet3_training.chain.example_changes import (
        frame_step,
        shifted,
        with_posteriors,
        with_weight,
    )
    from nnet3_training.chain.example_files import example_bytes, read_chain_example
    from nnet3_training.chain.fsts.files import fst_bytes, read_table_fst
    from nnet3_training.chain.numerator import frame_posteriors
    from nnet3_training.chain.supervision_files import read_supervision, supervision_bytes
    from nnet3_training.chain.utterance_examples import (
        ChainExampleMaker,
        ChainUtterance,
        whole_example,
    )
    from nnet3_training.egs.changes import with_context, with_output_name

__all__ = [
    "ChainExampleMaker",
    "ChainUtterance",
    "DenominatorResult",
    "example_bytes",
    "frame_posteriors",
    "frame_step",
    "fst_bytes",
    "read_chain_example",
    "read_supervision",
    "read_table_fst",
    "shifted",
    "supervision_bytes",
    "whole_example",
    "with_context",
    "with_output_name",
    "with_posteriors",
    "with_weight",
]

if not TYPE_CHECKING:  # or any name would be one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_training.chain.denominator": ("DenominatorResult",),
            "nnet3_training.chain.example_changes": (
                "frame_step",
                "shifted",
                "with_posteriors",
                "with_weight",
            ),
            "nnet3_training.chain.example_files": (
                "example_bytes",
                "read_chain_example",
            ),
            "nnet3_training.chain.supervision_files": (
                "read_supervision",
                "supervision_bytes",
            ),
            "nnet3_training.chain.fsts.files": ("fst_bytes", "read_table_fst"),
            "nnet3_training.chain.numerator": ("frame_posteriors",),
            "nnet3_training.chain.utterance_examples": (
                "ChainExampleMaker",
                "ChainUtterance",
                "whole_example",
            ),
            "nnet3_training.egs.changes": (
                "with_context",
                "with_output_name",
            ),
        },
    )
