"""Training: examples, objectives, and the change of parameters along the natural gradient.

examples.py, example_archive.py    what is trained on
objectives.py                      what is maximised
update.py                          how far parameters move
trainer.py                         one after the other
"""

from nnet3_runtime_cuda import TrainingError

from nnet3_training.errors import ExampleError
from nnet3_training.example_archive import read_examples
from nnet3_training.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    TrainingExample,
)
from nnet3_training.minibatches import merge_examples, minibatches
from nnet3_training.objectives import NodeObjectives, Objective, ObjectiveFunction, ObjectiveSum
from nnet3_training.options import TrainerOptions
from nnet3_training.trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "DenseTargets",
    "ExampleError",
    "ExampleInput",
    "ExampleOutput",
    "NodeObjectives",
    "Objective",
    "ObjectiveFunction",
    "ObjectiveSum",
    "SparsePosteriors",
    "Trainer",
    "TrainerOptions",
    "TrainingError",
    "TrainingExample",
    "merge_examples",
    "minibatches",
    "read_examples",
]
