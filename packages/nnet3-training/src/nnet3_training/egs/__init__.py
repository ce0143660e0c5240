"""Examples as Kaldi's tools know them ("egs"): files of them, changes, and how they are made.

examples.py            examples as values
files.py               reading and writing
changes.py             moving, cutting, renaming, weighting, compressing; images
chunks.py, making.py   making examples from features and labels of frames; random numbers
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.egs.changes import ImageAugmentation as ImageAugmentation
    from nnet3_training.egs.changes import input_context as input_context
    from nnet3_training.egs.changes import shifted as shifted
    from nnet3_training.egs.changes import with_compression as with_compression
    from nnet3_training.egs.changes import with_context as with_context
    from nnet3_training.egs.changes import with_frame as with_frame
    from nnet3_training.egs.changes import with_output_name as with_output_name
    from nnet3_training.egs.changes import with_weight as with_weight
    from nnet3_training.egs.chunks import CRandom as CRandom
    from nnet3_training.egs.chunks import Random as Random
    from nnet3_training.egs.chunks import SplitOptions as SplitOptions
    from nnet3_training.egs.chunks import UtteranceChunk as UtteranceChunk
    from nnet3_training.egs.chunks import UtteranceSplitter as UtteranceSplitter
    from nnet3_training.egs.chunks import shuffled as shuffled
    from nnet3_training.egs.examples import PathSupervision as PathSupervision
    from nnet3_training.egs.files import example_bytes as example_bytes
    from nnet3_training.egs.files import read_example as read_example
    from nnet3_training.egs.files import read_stored_matrix as read_stored_matrix
    from nnet3_training.egs.making import SpeakerChunk as SpeakerChunk
    from nnet3_training.egs.making import Utterance as Utterance
    from nnet3_training.egs.making import example_of_matrices as example_of_matrices
    from nnet3_training.egs.making import get_examples as get_examples
    from nnet3_training.egs.making import has_input_rows as has_input_rows
    from nnet3_training.egs.making import make_examples as make_examples
    from nnet3_training.egs.making import parse_ranges as parse_ranges
    from nnet3_training.egs.making import posteriors as posteriors
    from nnet3_training.egs.making import read_alignment as read_alignment
    from nnet3_training.egs.making import read_posterior as read_posterior
else:
    __getattr__, __dir__ = on_first_use(__name__)
