"""The types of the keywords of `Model.compute` and `Model.stream`, for type checkers."""

from __future__ import annotations

from typing import Literal, TypedDict


class ScoreKeywords(TypedDict, total=False):
    """The fields of `ScoreOptions`."""

    scores: Literal["raw", "log-softmax"]
    use_priors: bool
    acoustic_scale: float | None
    apply_exp: bool


class ComputeKeywords(ScoreKeywords, total=False):
    """These and the fields of `ChunkOptions`."""

    frames_per_chunk: int
    frame_subsampling_factor: int | None
    extra_left_context: int
    extra_right_context: int
    extra_left_context_initial: int
    extra_right_context_final: int
    online_ivector_period: int


class StreamKeywords(ScoreKeywords, total=False):
    """These and the fields of `StreamOptions`."""

    frames_per_chunk: int
    frame_subsampling_factor: int | None
    ivector_period: int | None
    extra_left_context_initial: int
    sequences: int
