"""Whole runs of training, and what comes after: fine-tuning, combination."""

from nnet3_training.recipes.combination import Combination, Combined, combine
from nnet3_training.recipes.fine_tuning import FineTuning, fine_tune

__all__ = ["Combination", "Combined", "FineTuning", "combine", "fine_tune"]
