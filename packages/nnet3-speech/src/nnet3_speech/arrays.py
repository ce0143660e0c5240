"""Checks of arrays that callers give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError


def feature_matrix(features: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Features as (frames, dim) float32.

    Raises:
        SpeechError: they are no matrix of finite numbers with a column or more.
    """
    values = np.asarray(features)
    if values.ndim != 2 or not values.shape[1] or values.dtype.kind not in "iuf":
        raise SpeechError(
            f"expected features (frames, dim), found shape {values.shape}, {values.dtype}"
        )
    values = values.astype(np.float32, copy=False)
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise SpeechError(f"frame {int(finite.argmin())} of the features is not finite")
    return values
