"""Examples as Kaldi's tools know them ("egs"): files of them, changes, and how they are made.

elements.py, files.py, archive.py    reading and writing
changes.py                           moving, cutting, renaming, weighting, compressing
chunks.py, making.py, labels.py      making examples from features and labels of frames
c_random.py                          Kaldi's random numbers, and random order
images.py                            images, changed at random
"""

from nnet3_training.egs.c_random import CRandom, Random, shuffled
from nnet3_training.egs.changes import (
    excised,
    input_context,
    shifted,
    with_compression,
    with_context,
    with_frame,
    with_output_name,
    with_weight,
)
from nnet3_training.egs.chunks import SplitOptions, UtteranceChunk, UtteranceSplitter
from nnet3_training.egs.elements import read_stored_matrix
from nnet3_training.egs.files import example_bytes, is_output_name, read_example
from nnet3_training.egs.images import ImageAugmentation
from nnet3_training.egs.labels import Posterior, read_alignment, read_posterior
from nnet3_training.egs.making import (
    SpeakerChunk,
    Utterance,
    example_of_matrices,
    get_examples,
    has_input_rows,
    make_examples,
    parse_ranges,
    posteriors,
)

__all__ = [
    "CRandom",
    "ImageAugmentation",
    "Posterior",
    "Random",
    "SpeakerChunk",
    "SplitOptions",
    "Utterance",
    "UtteranceChunk",
    "UtteranceSplitter",
    "example_bytes",
    "example_of_matrices",
    "excised",
    "get_examples",
    "has_input_rows",
    "input_context",
    "is_output_name",
    "make_examples",
    "parse_ranges",
    "posteriors",
    "read_alignment",
    "read_example",
    "read_posterior",
    "read_stored_matrix",
    "shifted",
    "shuffled",
    "with_compression",
    "with_context",
    "with_frame",
    "with_output_name",
    "with_weight",
]
