"""Training: examples, objectives, and the change of parameters along the natural gradient.

The modules::

    examples.py, egs/                  training examples, and Kaldi's files of them
    objectives.py                      objectives, which training maximises
    parameter_update.py                the change of the parameters
    trainer.py, callbacks.py           minibatch after minibatch, and callbacks between them
    checkpoint.py                      saving a run, and continuing it
    evaluation.py                      objectives and accuracies without a step
    chain/                             'chain' models: supervision, examples, LF-MMI
    hmm/                               transition models made and estimated
    recipes/                           whole runs, from scratch or fine-tuning; combination
    workers/                           workers: this process, other processes, or a cluster
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_cuda import TrainingError
    from nnet3_speech import HmmError

    from nnet3_training.callbacks import (
        Checkpoints,
        DropoutFunction,
        DropoutSchedule,
        LearningRateSchedule,
    )
    from nnet3_training.chain.denominator import DenominatorGraph
    from nnet3_training.chain.example_files import read_chain_examples, write_chain_examples
    from nnet3_training.chain.fsts.files import read_fst, write_fst
    from nnet3_training.chain.fsts.fst import Fst
    from nnet3_training.chain.objective import ChainObjective, ChainResult
    from nnet3_training.chain.options import ChainOptions
    from nnet3_training.chain.supervision import ChainSupervision
    from nnet3_training.chain.supervision_files import (
        read_chain_supervision,
        write_chain_supervision,
    )
    from nnet3_training.chain.training import ChainTraining, compute_chain_prob
    from nnet3_training.component_stats import saturated_units, zero_component_stats
    from nnet3_training.egs.chunks import SplitOptions
    from nnet3_training.egs.files import read_examples, write_examples
    from nnet3_training.egs.making import Utterance, get_examples, posteriors
    from nnet3_training.errors import ExampleError, RecipeError, WorkerError
    from nnet3_training.evaluation import Accuracy, Evaluation, Evaluator, in_test_mode
    from nnet3_training.examples import (
        DenseTargets,
        ExampleInput,
        ExampleOutput,
        SparsePosteriors,
        TrainingExample,
    )
    from nnet3_training.merging import ExampleMerger, MinibatchRules, merge_examples, minibatches
    from nnet3_training.objectives import (
        NodeObjectives,
        Objective,
        ObjectiveFunction,
        ObjectiveSum,
        OutputObjectives,
    )
    from nnet3_training.options import TrainerOptions
    from nnet3_training.trainer import Callback, Trainer

__version__ = "0.2.0"

__all__ = [
    "Accuracy",
    "Callback",
    "ChainObjective",
    "ChainOptions",
    "ChainResult",
    "ChainSupervision",
    "ChainTraining",
    "Checkpoints",
    "DenominatorGraph",
    "DenseTargets",
    "DropoutFunction",
    "DropoutSchedule",
    "Evaluation",
    "Evaluator",
    "ExampleError",
    "ExampleInput",
    "ExampleMerger",
    "ExampleOutput",
    "Fst",
    "HmmError",
    "LearningRateSchedule",
    "MinibatchRules",
    "NodeObjectives",
    "Objective",
    "ObjectiveFunction",
    "ObjectiveSum",
    "OutputObjectives",
    "RecipeError",
    "SparsePosteriors",
    "SplitOptions",
    "Trainer",
    "TrainerOptions",
    "TrainingError",
    "TrainingExample",
    "Utterance",
    "WorkerError",
    "compute_chain_prob",
    "get_examples",
    "in_test_mode",
    "merge_examples",
    "minibatches",
    "posteriors",
    "read_chain_examples",
    "read_chain_supervision",
    "read_examples",
    "read_fst",
    "saturated_units",
    "write_chain_examples",
    "write_chain_supervision",
    "write_examples",
    "write_fst",
    "zero_component_stats",
]

if not TYPE_CHECKING:  # or any name would be one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_cuda": ("TrainingError",),
            "nnet3_speech": ("HmmError",),
            "nnet3_training.callbacks": (
                "Checkpoints",
                "DropoutFunction",
                "DropoutSchedule",
                "LearningRateSchedule",
            ),
            "nnet3_training.chain.denominator": ("DenominatorGraph",),
            "nnet3_training.chain.example_files": (
                "read_chain_examples",
                "write_chain_examples",
            ),
            "nnet3_training.chain.fsts.files": (
                "read_fst",
                "write_fst",
            ),
            "nnet3_training.chain.fsts.fst": ("Fst",),
            "nnet3_training.chain.objective": (
                "ChainObjective",
                "ChainResult",
            ),
            "nnet3_training.chain.options": ("ChainOptions",),
            "nnet3_training.chain.supervision": ("ChainSupervision",),
            "nnet3_training.chain.supervision_files": (
                "read_chain_supervision",
                "write_chain_supervision",
            ),
            "nnet3_training.chain.training": (
                "ChainTraining",
                "compute_chain_prob",
            ),
            "nnet3_training.component_stats": ("saturated_units", "zero_component_stats"),
            "nnet3_training.evaluation": ("Accuracy", "Evaluation", "Evaluator", "in_test_mode"),
            "nnet3_training.egs.chunks": ("SplitOptions",),
            "nnet3_training.egs.making": ("Utterance", "get_examples", "posteriors"),
            "nnet3_training.egs.files": (
                "read_examples",
                "write_examples",
            ),
            "nnet3_training.errors": (
                "ExampleError",
                "RecipeError",
                "WorkerError",
            ),
            "nnet3_training.examples": (
                "DenseTargets",
                "ExampleInput",
                "ExampleOutput",
                "SparsePosteriors",
                "TrainingExample",
            ),
            "nnet3_training.merging": (
                "ExampleMerger",
                "MinibatchRules",
                "merge_examples",
                "minibatches",
            ),
            "nnet3_training.objectives": (
                "NodeObjectives",
                "Objective",
                "ObjectiveFunction",
                "ObjectiveSum",
                "OutputObjectives",
            ),
            "nnet3_training.options": ("TrainerOptions",),
            "nnet3_training.trainer": ("Callback", "Trainer"),
        },
    )
