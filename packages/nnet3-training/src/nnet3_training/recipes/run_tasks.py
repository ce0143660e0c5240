"""The tasks of a run, for workers: training, evaluation, and the average of the last models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from nnet3_descriptors import (
    Nnet,
    components,
    editing,
    read_nnet,
    set_test_mode,
    unvectorize,
    vectorize,
    write_nnet,
)
from nnet3_descriptors.editing import set_dropout_proportion, set_learning_rate_factor
from nnet3_runtime_cuda import TrainingError

from nnet3_training import errors, merging, objectives
from nnet3_training.egs.changes import shifted
from nnet3_training.egs.chunks import shuffled
from nnet3_training.egs.examples import TrainingExample
from nnet3_training.evaluation import Evaluator, in_test_mode, zero_component_stats
from nnet3_training.objectives import ObjectiveFunction
from nnet3_training.options import TrainerOptions
from nnet3_training.recipes import archives, run_folder
from nnet3_training.recipes.options import Iteration, RecipeOptions
from nnet3_training.trainer import Trainer


@attrs.frozen(kw_only=True, eq=False)
class Combined:
    """The result of a combination.

    Attributes:
        nnet: The average; if it has batch-norm, with statistics of the examples.
        num_models: Number of averaged models, from the first one given.
        objectives: For each number of models that was tried, the objective per frame.
        recomputed: The evaluation during which the statistics of batch-norm were gathered; None
            without batch-norm.
    """

    nnet: Nnet
    num_models: int
    objectives: dict[int, float]
    recomputed: Evaluator | None


def combine(
    nnets: Iterable[Nnet],
    examples: Sequence[TrainingExample],
    *,
    num_nnets: int,
    max_objective_evaluations: int = 30,
    batchnorm_test_mode: bool = False,
    dropout_test_mode: bool = True,
    objective: ObjectiveFunction | None = None,
    stats_objective: ObjectiveFunction | None = None,
    device: str = "cpu",
    after_evaluation: Callable[[int, float], object] | None = None,
) -> Combined:
    """Averages the first models; chooses the best number of them.

    Names and defaults of options are those of nnet3-combine.

    Args:
        nnets: Models of the same structure, the last one of a training run first; one is in memory
            at a time.
        examples: The examples to evaluate on; the objective is that of their outputs.
        num_nnets: Number of models.
        max_objective_evaluations: Approximate number of averages, of more and more models, whose
            objective is computed.
        batchnorm_test_mode: Whether batch-norm uses the statistics of the network; else those of
            each example, unless the network is in test mode already.
        dropout_test_mode: Whether dropout lets everything pass; else as the network says.
        objective: The objective function, such as a `ChainTraining`; by default the objectives of
            the output nodes.
        device: The device, as for an `Evaluator`.
        stats_objective: The objective function while statistics are gathered afterwards; by default
            the same. It may use outputs that the choice ignores.
        after_evaluation: Called with the number of models of an average, and its objective.

    Raises:
        ExampleError: there are no models, no examples or none with weight, or they do not fit each
            other; or no average has an objective that is finite; or `max_objective_evaluations` is
            no such number.
        NetworkError: the models differ in structure.
    """
    if not examples:
        raise errors.ExampleError("there are no examples to choose a combination by")
    most = max_objective_evaluations
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1:
        raise errors.ExampleError(
            f"max_objective_evaluations must be an integer >= 1 (got {most!r})"
        )
    if num_nnets < 1:
        raise errors.ExampleError("there are no models to combine")
    step = -(-num_nnets // most)
    objectives: dict[int, float] = {}
    average = best = None
    for number, nnet in enumerate(nnets):
        if average is None:
            average = nnet
        else:
            share = 1.0 / (number + 1)
            average = editing.weighted_sum([average, nnet], [1.0 - share, share])
        if number % step and number != num_nnets - 1:
            continue
        tested = in_test_mode(average, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode)
        value = _objective(Evaluator(tested, device=device, objective=objective), examples)
        objectives[number + 1] = value
        if after_evaluation is not None:
            after_evaluation(number + 1, value)
        if best is None or value > objectives[best[0]]:
            best = number + 1, average
    if best is None:
        raise errors.ExampleError("there are no models to combine")
    count, nnet = best
    if objectives[count] == -math.inf:
        raise errors.ExampleError(
            f"the objective of no average of {num_nnets} models is finite: models, or examples to "
            "choose a combination by, have numbers that are too large"
        )
    recomputed = None
    if any(isinstance(component, components.BatchNormComponent) for component in nnet.components):
        tested = in_test_mode(zero_component_stats(nnet), batchnorm=False, dropout=True)
        recomputed = Evaluator(
            tested, device=device, objective=stats_objective or objective, component_stats=True
        )
        for example in examples:
            recomputed.add(example)
        nnet = _with_test_modes_of(nnet, recomputed.nnet)
    return Combined(nnet=nnet, num_models=count, objectives=objectives, recomputed=recomputed)


def _objective(evaluator: Evaluator, examples: Sequence[TrainingExample]) -> float:
    """The objective per frame of all outputs, with auxiliary terms.

    A chain model has the cross-entropy output, if that counts, and l2 regularization as such terms.
    The result is -inf if the sum is not finite.
    """
    for example in examples:
        evaluator.add(example)
    totals = evaluator.objectives.values()
    weight = sum(each.weight for each in totals)
    if not weight:
        raise errors.ExampleError("the examples to choose a combination by have no weight")
    value = sum(each.total + each.auxiliary for each in totals) / weight
    return value if math.isfinite(value) else -math.inf


def _with_test_modes_of(original: Nnet, nnet: Nnet) -> Nnet:
    """The network with the test modes of the original one."""
    return nnet.with_components(
        {
            name: component.replace(test_mode=other.test_mode)
            for name, component, other in zip(
                nnet.component_names, nnet.components, original.components, strict=True
            )
            if hasattr(other, "test_mode")
        }
    )


_EVALUATED = merging.MinibatchRules.parse("150=1:64/600=1:16/2400=1:4/9600=1")
"""Sizes of minibatches where nothing is trained, by lengths of examples."""


def prepared(nnet: Nnet, options: RecipeOptions) -> Nnet:
    """The network as a job trains it: when fine-tuning, in test mode, with frozen components.

    Raises:
        RecipeError: a pattern in `options.freeze` matches no component with parameters.
    """
    if options.fine_tuning:
        nnet = set_test_mode(nnet)
    for pattern in options.freeze:
        frozen = set_learning_rate_factor(nnet, 0.0, pattern)
        pairs = zip(nnet.components, frozen.component_names, frozen.components, strict=True)
        changed = {name: after for before, name, after in pairs if after is not before}
        if not changed:
            raise errors.RecipeError(
                f"freeze: expected components with parameters with names like '{pattern}', found "
                "none"
            )
        # A step towards an orthonormal matrix has no learning rate.
        nnet = frozen.with_components(
            {
                name: component.replace(orthonormal_constraint=0.0)
                for name, component in changed.items()
                if hasattr(component, "orthonormal_constraint")
            }
        )
    return nnet


def kept(before: Nnet, after: Nnet, options: RecipeOptions) -> Nnet:
    """The result of training: when fine-tuning, the network before with new parameters."""
    return unvectorize(before, vectorize(after)) if options.fine_tuning else after


def train_job(
    folder: Path,
    options: RecipeOptions,
    iteration: Iteration,
    job: int,
    device: str,
) -> run_folder.JobRecord:
    """Trains the network of an iteration on an archive, unless that has been done.

    If training diverges, there is no network of the job, and the record says so.

    Args:
        folder: The folder of the run.
        options: Its options.
        iteration: The iteration.
        job: Number of the job in its iteration.
        device: Where to compute, as for a `Trainer`.

    Raises:
        ModelFileError, ExampleError, RunError: see `Trainer.train_minibatch`.
    """
    result = run_folder.job_network(folder, iteration.number, job)
    done = result.with_suffix(".json")
    if done.exists():
        return run_folder.read_record(run_folder.JobRecord, done)
    start = time.perf_counter()
    num_jobs, archive = len(iteration.archives), iteration.archives[job]
    # Each job of each iteration has its own seed.
    rng = np.random.default_rng([options.seed, iteration.number, job])
    given = nnet = read_nnet(run_folder.network(folder, iteration.number))
    objective = archives.objective_of(folder, options)
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
        device,
        objective=objective.function(nnet),
    )
    read = objective.read(archives.archive_path(folder / "archives", archive), nnet)
    frames, step = iteration.frame_shifts[job], options.frame_subsampling_factor
    examples = (shifted(example, frames, step=step) for example in read)
    merger = merging.ExampleMerger(merging.MinibatchRules.parse(options.minibatch_size))
    failure = ""
    try:
        for minibatch in merger.merged(shuffled(examples, rng, options.shuffle_buffer_size)):
            trainer.train_minibatch(minibatch)
    except TrainingError as error:
        failure = str(error)
    else:
        write_nnet(kept(given, trainer.nnet, options), result)
    updates = max(trainer.num_updates, 1)
    clipped = {name: count / updates for name, count in sorted(trainer.num_limited.items())}
    record = run_folder.JobRecord(
        archive=archive,
        frames=max((total.weight for total in trainer.objectives.values()), default=0.0),
        minibatches=trainer.num_minibatches,
        seconds=time.perf_counter() - start,
        figures={name: _figure(total) for name, total in trainer.objectives.items()},
        clipped={"": trainer.num_globally_limited / updates} | clipped,
        skipped=trainer.num_skipped,
        failure=failure,
    )
    run_folder.write_record(record, done)
    return record


def _figure(total: objectives.ObjectiveSum, accuracy: float | None = None) -> run_folder.Figure:
    return run_folder.Figure(
        per_frame=total.per_frame,
        frames=total.weight,
        accuracy=accuracy,
        auxiliary=total.auxiliary / total.weight if total.weight else 0.0,
    )


def evaluate(
    folder: Path, options: RecipeOptions, network: Path, device: str
) -> run_folder.Diagnostics:
    """Evaluates a network on training examples and on held-out examples.

    Args:
        folder: The folder of the run.
        options: Its options.
        network: The file of the network.
        device: Where to compute, as for a `Trainer`.

    Raises:
        ModelFileError, ExampleError, RunError: see `Evaluator.add`.
    """
    objective = archives.objective_of(folder, options)
    nnet = in_test_mode(read_nnet(network), batchnorm=True, dropout=True)
    # Target values are no classes, so there is no accuracy.
    classes = {node.name for node in nnet.output_nodes if node.objective != "quadratic"}
    found = {}
    for kind in archives.DIAGNOSTIC:
        evaluator = Evaluator(nnet, device=device, objective=objective.function(nnet))
        for minibatch in _minibatches(folder, objective, nnet, kind):
            evaluator.add(minibatch)
        shares = {name: each.per_frame for name, each in evaluator.accuracies.items()}
        found[kind] = {
            name: _figure(total, shares.get(name) if name in classes else None)
            for name, total in evaluator.objectives.items()
        }
    return run_folder.Diagnostics(**found)


def _minibatches(
    folder: Path, objective: archives.RunObjective, nnet: Nnet, kind: str
) -> Iterator[TrainingExample]:
    """The minibatches of one of the kinds of examples that networks are evaluated on."""
    examples = objective.read(archives.diagnostic_path(folder / "archives", kind), nnet)
    return merging.ExampleMerger(_EVALUATED).merged(examples)


def combine_networks(
    folder: Path, options: RecipeOptions, numbers: Sequence[int], device: str
) -> run_folder.FinalRecord:
    """Combines the last networks of a run to its final one.

    Args:
        folder: The folder of the run.
        options: Its options.
        numbers: The numbers of the networks, the last one first.
        device: Where to compute, as for a `Trainer`.

    Raises:
        ModelFileError, ExampleError, NetworkError: see `combine`.
    """
    objective = archives.objective_of(folder, options)
    paths = [run_folder.network(folder, number) for number in numbers]
    nnet, final = read_nnet(paths[0]), folder / "final.raw"
    combined = combine(
        map(read_nnet, paths),
        [
            each
            for kind in archives.DIAGNOSTIC
            for each in _minibatches(folder, objective, nnet, kind)
        ],
        num_nnets=len(paths),
        batchnorm_test_mode=options.fine_tuning,
        objective=objective.function(nnet),
        stats_objective=objective.function(nnet, is_for_stats=True),
        device=device,
    )
    write_nnet(kept(nnet, combined.nnet, options), final)
    return run_folder.FinalRecord(
        num_models=combined.num_models,
        objectives=combined.objectives,
        diagnostics=evaluate(folder, options, final, device),
    )


Result = run_folder.JobRecord | run_folder.Diagnostics | run_folder.FinalRecord
Task = Callable[[], Result]
"""A function of this module with its arguments, that can be sent to a worker."""


def do(task: Task) -> Result:
    """Does a task."""
    return task()
