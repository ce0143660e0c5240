"""Graphs of phones, transitions and pdfs, from which examples and the denominator are made.

phone_lm.py                          n-grams of phones
context.py, transition_graph.py      phones, phones in context, states of HMMs
denominator_fst.py                   den.fst and normalization.fst
phone_files.py, phone_lattices.py    phones of utterances: one sequence, or alternatives
alignments.py                        supervisions of alignments and lattices
normalization.py                     parts of supervisions, and their weights
unconstrained.py                     supervisions without times
lexicon.py, transcripts.py           the same from what was said, and a denominator
"""

from nnet3_training.chain.graphs.alignments import (
    ProtoSupervision,
    SupervisionOptions,
    supervision_of,
)
from nnet3_training.chain.graphs.denominator_fst import (
    make_denominator_fst,
    make_normalization_fst,
)
from nnet3_training.chain.graphs.lexicon import (
    Lexicon,
    Pronunciation,
    read_lexicon,
    read_transcripts,
)
from nnet3_training.chain.graphs.normalization import Normalization, SupervisionSplitter
from nnet3_training.chain.graphs.phone_files import read_alignment, read_phones
from nnet3_training.chain.graphs.phone_lattices import PhoneLattice, read_phone_lattice
from nnet3_training.chain.graphs.phone_lm import PhoneLm, PhoneLmOptions, estimate_phone_lm
from nnet3_training.chain.graphs.transcripts import Transcripts
from nnet3_training.chain.graphs.unconstrained import end_to_end, numerator_fst, unconstrained

__all__ = [
    "Lexicon",
    "Normalization",
    "PhoneLattice",
    "PhoneLm",
    "PhoneLmOptions",
    "Pronunciation",
    "ProtoSupervision",
    "SupervisionOptions",
    "SupervisionSplitter",
    "Transcripts",
    "end_to_end",
    "estimate_phone_lm",
    "make_denominator_fst",
    "make_normalization_fst",
    "numerator_fst",
    "read_alignment",
    "read_lexicon",
    "read_phone_lattice",
    "read_phones",
    "read_transcripts",
    "supervision_of",
    "unconstrained",
]
