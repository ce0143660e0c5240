"""Training: examples, objectives, and the change of parameters along the natural gradient.

The modules::

    egs/                               training examples, and Kaldi's files of them
    merging.py                         minibatches of examples
    objectives.py                      objectives, which training maximises
    parameter_update.py                the change of the parameters
    trainer.py, callbacks.py           minibatch after minibatch, and callbacks between them
    options.py                         options; checkpoints, from which a run continues
    evaluation.py                      objectives and accuracies without a step
    chain/                             'chain' models: supervision, examples, LF-MMI
    hmm/                               transition models made and estimated
    recipes/                           whole runs, from scratch or fine-tuned; combination
    workers/                           workers: this process, other processes, or a cluster
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_runtime_cuda import TrainingError as TrainingError
    from nnet3_speech import HmmError as HmmError

    from nnet3_training.callbacks import Checkpoints as Checkpoints
    from nnet3_training.callbacks import DropoutFunction as DropoutFunction
    from nnet3_training.callbacks import DropoutSchedule as DropoutSchedule
    from nnet3_training.callbacks import LearningRateSchedule as LearningRateSchedule
    from nnet3_training.chain.denominator import DenominatorGraph as DenominatorGraph
    from nnet3_training.chain.examples import read_chain_examples as read_chain_examples
    from nnet3_training.chain.examples import write_chain_examples as write_chain_examples
    from nnet3_training.chain.fsts.files import read_fst as read_fst
    from nnet3_training.chain.fsts.files import write_fst as write_fst
    from nnet3_training.chain.fsts.fst import Fst as Fst
    from nnet3_training.chain.objective import ChainObjective as ChainObjective
    from nnet3_training.chain.objective import ChainResult as ChainResult
    from nnet3_training.chain.objective import ChainTraining as ChainTraining
    from nnet3_training.chain.objective import compute_chain_prob as compute_chain_prob
    from nnet3_training.chain.options import ChainOptions as ChainOptions
    from nnet3_training.chain.supervision import ChainSupervision as ChainSupervision
    from nnet3_training.chain.supervision import read_chain_supervision as read_chain_supervision
    from nnet3_training.chain.supervision import write_chain_supervision as write_chain_supervision
    from nnet3_training.egs.chunks import SplitOptions as SplitOptions
    from nnet3_training.egs.examples import DenseTargets as DenseTargets
    from nnet3_training.egs.examples import ExampleInput as ExampleInput
    from nnet3_training.egs.examples import ExampleOutput as ExampleOutput
    from nnet3_training.egs.examples import SparsePosteriors as SparsePosteriors
    from nnet3_training.egs.examples import TrainingExample as TrainingExample
    from nnet3_training.egs.files import read_examples as read_examples
    from nnet3_training.egs.files import write_examples as write_examples
    from nnet3_training.egs.making import Utterance as Utterance
    from nnet3_training.egs.making import get_examples as get_examples
    from nnet3_training.egs.making import posteriors as posteriors
    from nnet3_training.errors import ExampleError as ExampleError
    from nnet3_training.errors import RecipeError as RecipeError
    from nnet3_training.errors import WorkerError as WorkerError
    from nnet3_training.evaluation import Accuracy as Accuracy
    from nnet3_training.evaluation import Evaluation as Evaluation
    from nnet3_training.evaluation import Evaluator as Evaluator
    from nnet3_training.evaluation import in_test_mode as in_test_mode
    from nnet3_training.evaluation import saturated_units as saturated_units
    from nnet3_training.evaluation import zero_component_stats as zero_component_stats
    from nnet3_training.merging import ExampleMerger as ExampleMerger
    from nnet3_training.merging import MinibatchRules as MinibatchRules
    from nnet3_training.merging import merge_examples as merge_examples
    from nnet3_training.merging import minibatches as minibatches
    from nnet3_training.objectives import Objective as Objective
    from nnet3_training.objectives import ObjectiveFunction as ObjectiveFunction
    from nnet3_training.objectives import ObjectiveSum as ObjectiveSum
    from nnet3_training.objectives import OutputObjectives as OutputObjectives
    from nnet3_training.options import TrainerOptions as TrainerOptions
    from nnet3_training.trainer import Callback as Callback
    from nnet3_training.trainer import Trainer as Trainer
else:
    __getattr__, __dir__ = on_first_use(__name__)
