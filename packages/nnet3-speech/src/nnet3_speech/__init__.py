"""Features, i-vectors, speaker scores and model folders, as Kaldi defines them.

There is no network arithmetic here: what this package makes goes into a network, and what it reads
says how.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_speech.audio import Recording as Recording
    from nnet3_speech.audio import read_wav as read_wav
    from nnet3_speech.cmvn import OnlineCmvn as OnlineCmvn
    from nnet3_speech.cmvn import OnlineCmvnState as OnlineCmvnState
    from nnet3_speech.cmvn import apply_cmvn as apply_cmvn
    from nnet3_speech.cmvn import apply_sliding_cmvn as apply_sliding_cmvn
    from nnet3_speech.cmvn import cmvn_stats as cmvn_stats
    from nnet3_speech.decoding import Hypothesis as Hypothesis
    from nnet3_speech.decoding import Word as Word
    from nnet3_speech.decoding import WordDecoder as WordDecoder
    from nnet3_speech.errors import HmmError as HmmError
    from nnet3_speech.errors import SpeechError as SpeechError
    from nnet3_speech.feature_options import CmvnOptions as CmvnOptions
    from nnet3_speech.feature_options import DeltaOptions as DeltaOptions
    from nnet3_speech.feature_options import FbankOptions as FbankOptions
    from nnet3_speech.feature_options import IvectorExtractionConfig as IvectorExtractionConfig
    from nnet3_speech.feature_options import MfccOptions as MfccOptions
    from nnet3_speech.feature_options import OnlineCmvnOptions as OnlineCmvnOptions
    from nnet3_speech.feature_options import SlidingCmvnOptions as SlidingCmvnOptions
    from nnet3_speech.feature_options import SpliceOptions as SpliceOptions
    from nnet3_speech.feature_options import VadOptions as VadOptions
    from nnet3_speech.features import FeatureExtractor as FeatureExtractor
    from nnet3_speech.features import FeatureStream as FeatureStream
    from nnet3_speech.features import SplicedTransform as SplicedTransform
    from nnet3_speech.features import Splicer as Splicer
    from nnet3_speech.features import add_deltas as add_deltas
    from nnet3_speech.features import compute_vad as compute_vad
    from nnet3_speech.folders import FolderOptions as FolderOptions
    from nnet3_speech.folders import ModelFolder as ModelFolder
    from nnet3_speech.gmm import DiagGmm as DiagGmm
    from nnet3_speech.gmm import FullGmm as FullGmm
    from nnet3_speech.gmm import Posteriors as Posteriors
    from nnet3_speech.gmm import pruned_posteriors as pruned_posteriors
    from nnet3_speech.ivector_extractor import AdaptationState as AdaptationState
    from nnet3_speech.ivector_extractor import IvectorExtractor as IvectorExtractor
    from nnet3_speech.online_ivectors import OnlineIvectorExtractor as OnlineIvectorExtractor
    from nnet3_speech.online_ivectors import OnlineIvectors as OnlineIvectors
    from nnet3_speech.options import read_options as read_options
    from nnet3_speech.phones import Phone as Phone
    from nnet3_speech.phones import best_phones as best_phones
    from nnet3_speech.phones import read_symbols as read_symbols
    from nnet3_speech.phones import without_positions as without_positions
    from nnet3_speech.pipeline import FeaturePipeline as FeaturePipeline
    from nnet3_speech.pipeline import Features as Features
    from nnet3_speech.pipeline import PipelineStream as PipelineStream
    from nnet3_speech.pipeline import Speaker as Speaker
    from nnet3_speech.plda import Plda as Plda
    from nnet3_speech.speaker_vectors import apply_transform as apply_transform
    from nnet3_speech.speaker_vectors import estimate_lda as estimate_lda
    from nnet3_speech.speaker_vectors import normalize_length as normalize_length
    from nnet3_speech.speaker_vectors import speaker_means as speaker_means
else:
    __getattr__, __dir__ = on_first_use(__name__)
