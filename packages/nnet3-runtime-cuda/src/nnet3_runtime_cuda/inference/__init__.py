"""Whole utterances: cutting, computing and scoring them, on several threads."""

from nnet3_runtime_cuda.inference.utterance_work import Run

__all__ = ["Run"]
