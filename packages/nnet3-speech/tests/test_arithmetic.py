"""Files with values that are too large for arithmetic: errors, and no warnings."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_speech import (
    FullGmm,
    OnlineIvectorExtractor,
)
from test_online_ivectors import FOLDER

FRAMES = np.ones((3, 2), dtype=np.float32)
STATISTICS = np.array([[1e300, 1.0, 2.0], [1e300, 1.0, 0.0]])


def too_large_extractor() -> object:
    """i-vectors by an extractor whose covariances are near the end of double precision."""
    models = OnlineIvectorExtractor.of_folder(FOLDER)
    inverse = models.extractor.inverse_covariances * 1e307
    extractor = attrs.evolve(models.extractor, inverse_covariances=inverse)
    return attrs.evolve(models, extractor=extractor).compute(np.ones((20, models.dim)))


def test_likelihood_without_an_end() -> None:
    """A frame far from all Gaussians has no finite likelihood, and gives no warning."""
    mixture = FullGmm(
        weights=np.ones(1, dtype=np.float32),
        means_invcovars=np.zeros((1, 2), dtype=np.float32),
        inv_covars=np.eye(2, dtype=np.float32)[None] * np.float32(1e30),
    )

    assert mixture.log_likelihoods(FRAMES * np.float32(1e30)).tolist() == [[-np.inf]] * 3
