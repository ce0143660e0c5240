"""Whole runs of training, and what comes after: fine-tuning, combination.

schedule.py            options of a run from scratch, and the iterations that follow from them
objectives.py          what a run maximises, and how it makes and reads examples
example_archives.py    the examples of a run
run_tasks.py           what the workers of a run do
records.py             what a run leaves on disk beside networks
training_run.py        a run from scratch, in a folder
combination.py         the average of the last models
fine_tuning.py         chain models trained on
"""

from nnet3_training.recipes.combination import Combination, Combined, combine
from nnet3_training.recipes.fine_tuning import FineTuning, fine_tune
from nnet3_training.recipes.objectives import TrainingData
from nnet3_training.recipes.records import (
    ArchivesRecord,
    Diagnostics,
    Figure,
    FinalRecord,
    IterationRecord,
    JobRecord,
)
from nnet3_training.recipes.schedule import Iteration, RecipeOptions, schedule
from nnet3_training.recipes.training_run import TrainingRun, train_recipe

__all__ = [
    "ArchivesRecord",
    "Combination",
    "Combined",
    "Diagnostics",
    "Figure",
    "FinalRecord",
    "FineTuning",
    "Iteration",
    "IterationRecord",
    "JobRecord",
    "RecipeOptions",
    "TrainingData",
    "TrainingRun",
    "combine",
    "fine_tune",
    "schedule",
    "train_recipe",
]
