"""Whole runs of training, from scratch or from a trained network, and the combination of networks.

options.py         options of a run, and the iterations that follow from them
archives.py        the objective of a run, and its examples
run_tasks.py       the tasks of a run, for workers; the average of the last models
run_folder.py      the files of a run besides networks, their names, and the lock
training_run.py    a run, in a folder
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.recipes.archives import RunObjective as RunObjective
    from nnet3_training.recipes.archives import TrainingData as TrainingData
    from nnet3_training.recipes.options import FINE_TUNING as FINE_TUNING
    from nnet3_training.recipes.options import Iteration as Iteration
    from nnet3_training.recipes.options import RecipeOptions as RecipeOptions
    from nnet3_training.recipes.options import fine_tuning_options as fine_tuning_options
    from nnet3_training.recipes.options import schedule as schedule
    from nnet3_training.recipes.run_folder import ArchivesRecord as ArchivesRecord
    from nnet3_training.recipes.run_folder import Diagnostics as Diagnostics
    from nnet3_training.recipes.run_folder import Figure as Figure
    from nnet3_training.recipes.run_folder import FinalRecord as FinalRecord
    from nnet3_training.recipes.run_folder import IterationRecord as IterationRecord
    from nnet3_training.recipes.run_folder import JobRecord as JobRecord
    from nnet3_training.recipes.run_tasks import Combined as Combined
    from nnet3_training.recipes.run_tasks import combine as combine
    from nnet3_training.recipes.training_run import TrainingRun as TrainingRun
    from nnet3_training.recipes.training_run import train_recipe as train_recipe
else:
    __getattr__, __dir__ = on_first_use(__name__)
