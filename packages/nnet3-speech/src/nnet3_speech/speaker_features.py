"""What networks for x-vectors read: normalised features of voiced frames."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnet3_speech.cmvn import SlidingCmvnOptions, apply_sliding_cmvn
from nnet3_speech.errors import SpeechError
from nnet3_speech.folders import ModelFolder
from nnet3_speech.options import read_options
from nnet3_speech.vad import VadOptions, compute_vad

_WINDOW = SlidingCmvnOptions(cmn_window=300, center=True)
"""That of Kaldi's recipes (`sid/nnet3/xvector/extract_xvectors.sh`)."""


def speaker_features(features: npt.ArrayLike, folder: ModelFolder) -> npt.NDArray[np.float32]:
    """The features of which a network makes an x-vector, as Kaldi's recipes prepare them.

    Each frame is taken less the mean of a window of 300 frames around it; then frames that are not
    voiced are left out, if the folder has a vad.conf.

    Args:
        features: (frames, dim), MFCC or filter banks of an utterance as they are computed.
        folder: The folder of the model.

    Returns:
        (voiced, dim) float32.

    Raises:
        SpeechError: the features are no matrix of finite numbers, vad.conf cannot be read, or no
            frame is voiced.
    """
    normalized = apply_sliding_cmvn(features, _WINDOW)
    if "vad.conf" not in folder.files:
        return normalized
    voiced = compute_vad(features, read_options(VadOptions, folder.files["vad.conf"]))
    if not voiced.any():
        raise SpeechError(
            f"none of {len(voiced)} frames is voiced by the options of {folder.files['vad.conf']}"
        )
    return normalized[voiced]
