"""Features, i-vectors, speaker scores and model folders, as Kaldi defines them.

There is no network arithmetic here: what this package makes goes into a network, and what it reads
says how.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_speech.adaptation_state import AdaptationState
    from nnet3_speech.audio import Recording, read_wav
    from nnet3_speech.cmvn import apply_cmvn, apply_sliding_cmvn, cmvn_stats
    from nnet3_speech.decoding import Hypothesis, Word, WordDecoder
    from nnet3_speech.deltas import add_deltas
    from nnet3_speech.errors import HmmError, SpeechError
    from nnet3_speech.feature_options import FbankOptions, MfccOptions
    from nnet3_speech.features import FeatureExtractor, FeatureStream
    from nnet3_speech.folders import FolderOptions, ModelFolder
    from nnet3_speech.gmm import DiagGmm, FullGmm, Posteriors, pruned_posteriors
    from nnet3_speech.ivector_extractor import IvectorExtractor
    from nnet3_speech.ivector_options import IvectorExtractionConfig
    from nnet3_speech.online_cmvn import OnlineCmvn, OnlineCmvnOptions, OnlineCmvnState
    from nnet3_speech.online_ivectors import OnlineIvectorExtractor, OnlineIvectors
    from nnet3_speech.options import read_options
    from nnet3_speech.phones import Phone, best_phones, without_positions
    from nnet3_speech.pipeline import FeaturePipeline, Features, PipelineStream, Speaker
    from nnet3_speech.plda import Plda
    from nnet3_speech.processing_options import (
        CmvnOptions,
        DeltaOptions,
        SlidingCmvnOptions,
        VadOptions,
    )
    from nnet3_speech.speaker_vectors import (
        apply_transform,
        estimate_lda,
        normalize_length,
        speaker_means,
    )
    from nnet3_speech.splicing import SplicedTransform, SpliceOptions, Splicer
    from nnet3_speech.symbols import read_symbols
    from nnet3_speech.vad import compute_vad

__version__ = "0.2.0"

__all__ = [
    "AdaptationState",
    "CmvnOptions",
    "DeltaOptions",
    "DiagGmm",
    "FbankOptions",
    "FeatureExtractor",
    "FeaturePipeline",
    "FeatureStream",
    "Features",
    "FolderOptions",
    "FullGmm",
    "HmmError",
    "Hypothesis",
    "IvectorExtractionConfig",
    "IvectorExtractor",
    "MfccOptions",
    "ModelFolder",
    "OnlineCmvn",
    "OnlineCmvnOptions",
    "OnlineCmvnState",
    "OnlineIvectorExtractor",
    "OnlineIvectors",
    "Phone",
    "PipelineStream",
    "Plda",
    "Posteriors",
    "Recording",
    "SlidingCmvnOptions",
    "Speaker",
    "SpeechError",
    "SpliceOptions",
    "SplicedTransform",
    "Splicer",
    "VadOptions",
    "Word",
    "WordDecoder",
    "add_deltas",
    "apply_cmvn",
    "apply_sliding_cmvn",
    "apply_transform",
    "best_phones",
    "cmvn_stats",
    "compute_vad",
    "estimate_lda",
    "normalize_length",
    "pruned_posteriors",
    "read_options",
    "read_symbols",
    "read_wav",
    "speaker_means",
    "without_positions",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_speech.adaptation_state": ("AdaptationState",),
            "nnet3_speech.audio": ("Recording", "read_wav"),
            "nnet3_speech.cmvn": (
                "apply_cmvn",
                "apply_sliding_cmvn",
                "cmvn_stats",
            ),
            "nnet3_speech.decoding": (
                "Hypothesis",
                "Word",
                "WordDecoder",
            ),
            "nnet3_speech.deltas": ("add_deltas",),
            "nnet3_speech.errors": ("HmmError", "SpeechError"),
            "nnet3_speech.feature_options": ("FbankOptions", "MfccOptions"),
            "nnet3_speech.features": ("FeatureExtractor", "FeatureStream"),
            "nnet3_speech.folders": ("FolderOptions", "ModelFolder"),
            "nnet3_speech.gmm": (
                "DiagGmm",
                "FullGmm",
                "Posteriors",
                "pruned_posteriors",
            ),
            "nnet3_speech.ivector_extractor": ("IvectorExtractor",),
            "nnet3_speech.ivector_options": ("IvectorExtractionConfig",),
            "nnet3_speech.online_cmvn": (
                "OnlineCmvn",
                "OnlineCmvnOptions",
                "OnlineCmvnState",
            ),
            "nnet3_speech.online_ivectors": ("OnlineIvectorExtractor", "OnlineIvectors"),
            "nnet3_speech.options": ("read_options",),
            "nnet3_speech.phones": (
                "Phone",
                "best_phones",
                "without_positions",
            ),
            "nnet3_speech.pipeline": (
                "FeaturePipeline",
                "Features",
                "PipelineStream",
                "Speaker",
            ),
            "nnet3_speech.plda": ("Plda",),
            "nnet3_speech.processing_options": (
                "CmvnOptions",
                "DeltaOptions",
                "SlidingCmvnOptions",
                "VadOptions",
            ),
            "nnet3_speech.speaker_vectors": (
                "apply_transform",
                "estimate_lda",
                "normalize_length",
                "speaker_means",
            ),
            "nnet3_speech.splicing": (
                "SpliceOptions",
                "SplicedTransform",
                "Splicer",
            ),
            "nnet3_speech.symbols": ("read_symbols",),
            "nnet3_speech.vad": ("compute_vad",),
        },
    )
