"""Scores made of outputs."""

from __future__ import annotations

from typing import Literal, TypedDict

import attrs
import numpy as np
from nnet3_runtime_cuda import RunError
from nnet3_runtime_cuda.arrays import FloatArray, running

_SCORES = ("raw", "log-softmax")


class ScoreKeywords(TypedDict, total=False):
    """The fields of `ScoreOptions` as keywords, for type checkers."""

    scores: Literal["raw", "log-softmax"]
    use_priors: bool
    acoustic_scale: float | None
    apply_exp: bool


@attrs.frozen(kw_only=True)
class ScoreOptions:
    """The options for turning outputs into scores, in this order.

    Attributes:
        scores: "raw" for the outputs as they are, or "log-softmax" for the logarithm of the softmax
            over the columns. Of log-posteriors that is no change.
        use_priors: Whether the logarithm of the priors is subtracted.
        acoustic_scale: Multiplies the result.
        apply_exp: Whether the exponential of the result is returned.

    Raises:
        RunError: `scores` is another word, the scale is not a finite number, or one of the others
            is neither True nor False.
    """

    scores: Literal["raw", "log-softmax"] = "raw"
    use_priors: bool = False
    acoustic_scale: float = 1.0
    apply_exp: bool = False

    def __attrs_post_init__(self) -> None:
        """Checks the scale, and that words such as "no" do not count as True."""
        if self.scores not in _SCORES:
            raise RunError(f"'scores' must be 'raw' or 'log-softmax' (got {self.scores!r})")
        for name in ("use_priors", "apply_exp"):
            value: object = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise RunError(f"'{name}' must be True or False (got {value!r})")
        scale: object = self.acoustic_scale
        if isinstance(scale, np.floating):
            scale = float(scale)  # NumPy would compare in the precision of the scale
        most = float(np.finfo(np.float32).max)
        if not isinstance(scale, int | float) or not -most <= scale <= most:
            raise RunError(f"'acoustic_scale' must be a finite number of float32 (got {scale!r})")

    def check(self, priors: FloatArray | None) -> None:
        """Raises a RunError if priors are needed, and are missing or have no logarithm."""
        if not self.use_priors:
            return
        if priors is None:
            raise RunError("the output has no priors; a .mdl file with priors is needed")
        without = ~(np.isfinite(priors) & (priors > 0.0))
        if without.any():
            number = int(np.flatnonzero(without)[0])
            raise RunError(f"prior {number} must be a positive number (got {priors[number]})")

    def apply(self, outputs: FloatArray, priors: FloatArray | None) -> FloatArray:
        """Turns outputs into scores, in place.

        Args:
            outputs: (rows, output_dim), the output of the network.
            priors: (output_dim,), the prior of each output; see `check`.

        Returns:
            The same array.
        """
        with running():  # callers check the result
            if self.scores == "log-softmax":
                outputs -= outputs.max(axis=1, keepdims=True)
                outputs -= np.log(np.exp(outputs).sum(axis=1, keepdims=True))
            if self.use_priors and priors is not None:
                outputs -= np.log(priors)
            if self.acoustic_scale != 1.0:
                outputs *= np.float32(self.acoustic_scale)
            return np.exp(outputs, out=outputs) if self.apply_exp else outputs
