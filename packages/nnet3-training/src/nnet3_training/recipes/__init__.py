"""Whole runs of training, from scratch or from a trained network, and the combination of networks.

iterations.py          options of a run, and the iterations that follow from them
objectives.py          the objective of a run, and its ways to make and read examples
example_archives.py    the examples of a run
run_tasks.py           the tasks of a run, for workers
records.py             the files of a run besides networks; which jobs diverged
training_run.py        a run, in a folder
combination.py         the average of the last models
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.recipes.combination import Combination, Combined, combine
    from nnet3_training.recipes.iterations import (
        FINE_TUNING,
        Iteration,
        RecipeOptions,
        fine_tuning_options,
        schedule,
    )
    from nnet3_training.recipes.objectives import (
        RunObjective,
        TrainingData,
    )
    from nnet3_training.recipes.records import (
        ArchivesRecord,
        Diagnostics,
        Figure,
        FinalRecord,
        IterationRecord,
        JobRecord,
    )
    from nnet3_training.recipes.training_run import TrainingRun, train_recipe

__all__ = [
    "FINE_TUNING",
    "ArchivesRecord",
    "Combination",
    "Combined",
    "Diagnostics",
    "Figure",
    "FinalRecord",
    "Iteration",
    "IterationRecord",
    "JobRecord",
    "RecipeOptions",
    "RunObjective",
    "TrainingData",
    "TrainingRun",
    "combine",
    "fine_tuning_options",
    "schedule",
    "train_recipe",
]

if not TYPE_CHECKING:  # or any name would be one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_training.recipes.combination": (
                "Combination",
                "Combined",
                "combine",
            ),
            "nnet3_training.recipes.objectives": (
                "RunObjective",
                "TrainingData",
            ),
            "nnet3_training.recipes.records": (
                "ArchivesRecord",
                "Diagnostics",
                "Figure",
                "FinalRecord",
                "IterationRecord",
                "JobRecord",
            ),
            "nnet3_training.recipes.iterations": (
                "FINE_TUNING",
                "Iteration",
                "RecipeOptions",
                "fine_tuning_options",
                "schedule",
            ),
            "nnet3_training.recipes.training_run": (
                "TrainingRun",
                "train_recipe",
            ),
        },
    )
