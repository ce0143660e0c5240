"""The tasks of workers in a training run: train a network, evaluate one, combine several.

A task names the files that it reads and writes, so all workers need the folder under the same path.
A file is written whole or not at all, and its content depends only on the task: every worker, and
every repetition, gives the same network.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import numpy as np
from nnet3_descriptors import Nnet, read_nnet, set_test_mode, unvectorize, vectorize, write_nnet
from nnet3_descriptors.editing import set_dropout_proportion, set_learning_rate_factor
from nnet3_runtime_cuda import TrainingError

from nnet3_training import errors, merging, objectives
from nnet3_training.chain.examples import shifted
from nnet3_training.egs.chunks import shuffled
from nnet3_training.egs.examples import TrainingExample
from nnet3_training.evaluation import Evaluator, in_test_mode
from nnet3_training.options import TrainerOptions
from nnet3_training.recipes import combination, iterations, records
from nnet3_training.recipes.archives import RunObjective, archive_path
from nnet3_training.trainer import Trainer

_EVALUATED = merging.MinibatchRules.parse("150=1:64/600=1:16/2400=1:4/9600=1")
"""Sizes of minibatches where nothing is trained, by lengths of examples."""


@attrs.frozen(kw_only=True)
class EvaluationTask:
    """A network to be evaluated.

    Attributes:
        folder: The folder of the archives.
        network: The network.
        objective: The objective that is measured or maximised.
        device: Where to compute, as for a `Trainer`.
    """

    folder: Path
    network: Path
    objective: RunObjective
    device: str = "cpu"


@attrs.frozen(kw_only=True)
class TrainingTask(EvaluationTask):
    """A job of an iteration, which begins with `network`.

    Attributes:
        result: Path of the trained network; the record lies beside it.
        iteration: The iteration.
        job: Number of the job in its iteration.
        options: The options of the run.
    """

    result: Path
    iteration: iterations.Iteration
    job: int
    options: iterations.RecipeOptions

    @property
    def record(self) -> Path:
        """Path of the record, which exists when the task is done."""
        return self.result.with_suffix(".json")


def prepared(nnet: Nnet, options: iterations.RecipeOptions) -> Nnet:
    """The network as a job trains it: when fine-tuning, in test mode, with frozen components.

    Raises:
        RecipeError: a pattern in `options.freeze` matches no component with parameters.
    """
    if options.fine_tuning:
        nnet = set_test_mode(nnet)
    for pattern in options.freeze:
        frozen = set_learning_rate_factor(nnet, 0.0, pattern)
        if all(one is other for one, other in zip(nnet.components, frozen.components, strict=True)):
            raise errors.RecipeError(
                f"freeze: expected components with parameters with names like '{pattern}', found "
                "none"
            )
        nnet = frozen
    return nnet


def kept(before: Nnet, after: Nnet, options: iterations.RecipeOptions) -> Nnet:
    """The result of training: when fine-tuning, the network before with new parameters."""
    return unvectorize(before, vectorize(after)) if options.fine_tuning else after


def train_job(task: TrainingTask) -> records.JobRecord:
    """Trains a network on an archive, unless that has been done.

    If training diverges, there is no network, and the record says so.

    Raises:
        ModelFileError, ExampleError, RunError: see `Trainer.train_minibatch`.
    """
    if task.record.exists():
        return records.read_record(records.JobRecord, task.record)
    start = time.perf_counter()
    options, iteration = task.options, task.iteration
    num_jobs, archive = len(iteration.archives), iteration.archives[task.job]
    # Each job of each iteration has its own seed.
    rng = np.random.default_rng([options.seed, iteration.number, task.job])
    given = nnet = read_nnet(task.network)
    for pattern, proportion in iteration.dropout.items():
        nnet = set_dropout_proportion(nnet, proportion, pattern)
    settings = TrainerOptions()
    if options.fine_tuning:
        # Statistics that batch-norm computes with must be neither zeroed nor scaled.
        settings = TrainerOptions(zero_component_stats=False, batchnorm_stats_scale=1.0)
    trainer = Trainer(
        prepared(nnet, options),
        attrs.evolve(
            settings,
            learning_rate=iteration.learning_rate * num_jobs,
            momentum=options.momentum,
            max_param_change=options.max_param_change,
            l2_regularize_factor=1.0 / num_jobs,  # a job's rate is num_jobs times larger
            seed=int(rng.integers(1 << 31)),
        ),
        task.device,
        objective=task.objective.function(nnet),
    )
    read = task.objective.read(archive_path(task.folder, archive), nnet)
    frames, step = iteration.frame_shifts[task.job], options.frame_subsampling_factor
    examples = (shifted(example, frames, step=step) for example in read)
    merger = merging.ExampleMerger(merging.MinibatchRules.parse(options.minibatch_size))
    failure = ""
    try:
        for minibatch in merger.merged(shuffled(examples, rng, options.shuffle_buffer_size)):
            trainer.train_minibatch(minibatch)
    except TrainingError as error:
        failure = str(error)
    else:
        write_nnet(kept(given, trainer.nnet, options), task.result)
    updates = max(trainer.num_updates, 1)
    clipped = {name: count / updates for name, count in sorted(trainer.num_limited.items())}
    record = records.JobRecord(
        archive=archive,
        frames=max((total.weight for total in trainer.objectives.values()), default=0.0),
        minibatches=trainer.num_minibatches,
        seconds=time.perf_counter() - start,
        figures={name: _figure(total) for name, total in trainer.objectives.items()},
        clipped={"": trainer.num_globally_limited / updates} | clipped,
        skipped=trainer.num_skipped,
        failure=failure,
    )
    records.write_record(record, task.record)
    return record


def _figure(total: objectives.ObjectiveSum, accuracy: float | None = None) -> records.Figure:
    return records.Figure(
        per_frame=total.per_frame,
        frames=total.weight,
        accuracy=accuracy,
        auxiliary=total.auxiliary / total.weight if total.weight else 0.0,
    )


def evaluate(task: EvaluationTask) -> records.Diagnostics:
    """Evaluates a network on training examples and on held-out examples.

    Raises:
        ModelFileError, ExampleError, RunError: see `Evaluator.add`.
    """
    nnet = in_test_mode(read_nnet(task.network), batchnorm=True, dropout=True)
    return records.Diagnostics(
        **{name: _figures(task, nnet, path) for name, path in _diagnostic(task.folder).items()}
    )


def _diagnostic(folder: Path) -> Mapping[str, Path]:
    """The archives that networks are evaluated on."""
    return {name: folder / f"diagnostic.{name}.ark" for name in ("train", "held_out")}


def _minibatches(objective: RunObjective, nnet: Nnet, path: Path) -> Iterator[TrainingExample]:
    return merging.ExampleMerger(_EVALUATED).merged(objective.read(path, nnet))


def _figures(task: EvaluationTask, nnet: Nnet, path: Path) -> dict[str, records.Figure]:
    evaluator = Evaluator(nnet, device=task.device, objective=task.objective.function(nnet))
    for minibatch in _minibatches(task.objective, nnet, path):
        evaluator.add(minibatch)
    # Target values are no classes, so there is no accuracy.
    classes = {node.name for node in nnet.output_nodes if node.objective != "quadratic"}
    shares = {
        name: found.per_frame for name, found in evaluator.accuracies.items() if name in classes
    }
    return {name: _figure(total, shares.get(name)) for name, total in evaluator.objectives.items()}


@attrs.frozen(kw_only=True)
class CombinationTask(EvaluationTask):
    """The last networks of a run, to be combined; `network` is the average to write.

    Attributes:
        networks: The networks, the last one first.
        options: The options of the run.
    """

    networks: tuple[Path, ...]
    options: iterations.RecipeOptions


def combine_networks(task: CombinationTask) -> records.FinalRecord:
    """Combines networks.

    Raises:
        ModelFileError, ExampleError, NetworkError: see `combine`.
    """
    nnet, objective = read_nnet(task.networks[0]), task.objective
    paths = _diagnostic(task.folder).values()
    examples = list(
        itertools.chain.from_iterable(_minibatches(objective, nnet, path) for path in paths)
    )
    combined = combination.combine(
        map(read_nnet, task.networks),
        examples,
        combination.Combination(batchnorm_test_mode=task.options.fine_tuning),
        num_nnets=len(task.networks),
        objective=objective.function(nnet),
        stats_objective=objective.function(nnet, is_for_stats=True),
        device=task.device,
    )
    write_nnet(kept(nnet, combined.nnet, task.options), task.network)
    return records.FinalRecord(
        num_models=combined.num_models, objectives=combined.objectives, diagnostics=evaluate(task)
    )


def do(task: EvaluationTask) -> records.JobRecord | records.Diagnostics | records.FinalRecord:
    """Does a task of any kind."""
    match task:
        case TrainingTask():
            return train_job(task)
        case CombinationTask():
            return combine_networks(task)
    return evaluate(task)
