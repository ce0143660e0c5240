"""Graphs of phones, transitions and pdfs, from which examples and the denominator are made.

phone_lm.py            n-grams of phones
transition_graph.py    phones, phones in context, states of HMMs; den.fst and normalization.fst
phone_lattices.py      phones of utterances as alternatives
alignments.py          supervisions of alignments and lattices
supervisions.py        parts of supervisions, their weights; supervisions without times
transcripts.py         the same from what was said, and a denominator
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.chain.graphs.alignments import ProtoSupervision as ProtoSupervision
    from nnet3_training.chain.graphs.alignments import SupervisionOptions as SupervisionOptions
    from nnet3_training.chain.graphs.alignments import read_alignment as read_alignment
    from nnet3_training.chain.graphs.alignments import read_phones as read_phones
    from nnet3_training.chain.graphs.alignments import supervision_of as supervision_of
    from nnet3_training.chain.graphs.phone_lattices import PhoneLattice as PhoneLattice
    from nnet3_training.chain.graphs.phone_lattices import read_phone_lattice as read_phone_lattice
    from nnet3_training.chain.graphs.phone_lm import PhoneLm as PhoneLm
    from nnet3_training.chain.graphs.phone_lm import PhoneLmOptions as PhoneLmOptions
    from nnet3_training.chain.graphs.phone_lm import estimate_phone_lm as estimate_phone_lm
    from nnet3_training.chain.graphs.supervisions import Normalization as Normalization
    from nnet3_training.chain.graphs.supervisions import SupervisionSplitter as SupervisionSplitter
    from nnet3_training.chain.graphs.supervisions import end_to_end as end_to_end
    from nnet3_training.chain.graphs.supervisions import numerator_fst as numerator_fst
    from nnet3_training.chain.graphs.supervisions import unconstrained as unconstrained
    from nnet3_training.chain.graphs.transcripts import Lexicon as Lexicon
    from nnet3_training.chain.graphs.transcripts import Pronunciation as Pronunciation
    from nnet3_training.chain.graphs.transcripts import Transcripts as Transcripts
    from nnet3_training.chain.graphs.transcripts import read_lexicon as read_lexicon
    from nnet3_training.chain.graphs.transcripts import read_transcripts as read_transcripts
    from nnet3_training.chain.graphs.transition_graph import (
        make_denominator_fst as make_denominator_fst,
    )
    from nnet3_training.chain.graphs.transition_graph import (
        make_normalization_fst as make_normalization_fst,
    )
else:
    __getattr__, __dir__ = on_first_use(__name__)
