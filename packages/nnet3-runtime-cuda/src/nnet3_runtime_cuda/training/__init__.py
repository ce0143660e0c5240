"""Training: examples, objectives, and the change of parameters along the natural gradient.

examples.py, example_archive.py    what is trained on
objectives.py                      what is maximised
update.py                          how far parameters move
trainer.py                         one after the other
"""

from .example_archive import read_examples
from .examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    TrainingExample,
)
from .minibatches import merge_examples, minibatches
from .objectives import NodeObjectives, Objective, ObjectiveFunction, ObjectiveSum
from .options import TrainerOptions
from .trainer import Trainer

__all__ = [
    "DenseTargets",
    "ExampleInput",
    "ExampleOutput",
    "NodeObjectives",
    "Objective",
    "ObjectiveFunction",
    "ObjectiveSum",
    "SparsePosteriors",
    "Trainer",
    "TrainerOptions",
    "TrainingExample",
    "merge_examples",
    "minibatches",
    "read_examples",
]
