"""A run of training, from scratch or fine-tuning, in a folder that always records its progress.

recipe.json                the options of the run
den.fst                    of a 'chain' model, the denominator
archives/                  examples: train.NUMBER.ark, diagnostic.train.ark, ...
models/NUMBER.raw          networks; 0 is the one to begin with. Old ones are removed
jobs/NUMBER.JOB.raw        networks of the jobs of an iteration that is not done yet
run.lock                   locked by the process that trains; it is gone at the end
iterations/NUMBER.json     the record of an iteration: it is done when this file exists. The folder
                           exists from the begin of the first iteration on
diagnostics/NUMBER.json    the objectives of network NUMBER
final.raw, final.json      the result: the run is done when final.json exists
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import attrs
import numpy as np
from nnet3_descriptors import Nnet, Nnet3Error, editing, files, read_nnet, values, write_nnet
from nnet3_runtime_cuda import TrainingError

from nnet3_training.chain.fsts.files import read_fst, vector_bytes, write_fst
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.objective import ChainTraining
from nnet3_training.errors import RecipeError
from nnet3_training.evaluation import saturation
from nnet3_training.recipes import run_folder, run_tasks
from nnet3_training.recipes.archives import (
    RunObjective,
    TrainingData,
    make_archives,
    objective_of,
)
from nnet3_training.recipes.options import Iteration, RecipeOptions, first_combined, schedule
from nnet3_training.workers import InProcess, Workers

Event = (
    run_folder.ArchivesRecord
    | run_folder.JobRecord
    | run_folder.IterationRecord
    | run_folder.FinalRecord
)
"""The events that a run reports."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TrainingRun:
    """The state of a run in a folder.

    Attributes:
        folder: The folder.
        options: Its options.
        archives: Its examples; None before they are made.
        iterations: The iterations that are done.
        diagnostics: By number of network, its objectives.
        final: The result; None before the end.
    """

    folder: Path
    options: RecipeOptions
    archives: run_folder.ArchivesRecord | None
    iterations: tuple[run_folder.IterationRecord, ...]
    diagnostics: dict[int, run_folder.Diagnostics]
    final: run_folder.FinalRecord | None

    def __repr__(self) -> str:
        """The folder and the progress of the run."""
        state = "ended" if self.final is not None else f"of {len(self.schedule) or 'unknown'}"
        return f"<TrainingRun in {str(self.folder)!r}: {len(self.iterations)} iterations, {state}>"

    def _repr_html_(self) -> str | None:
        """Objectives as curves, and the iterations as a table: what notebooks show."""
        return values.shown("training_run_html", self)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> TrainingRun:
        """Reads the state of a run.

        Raises:
            RecipeError: the folder holds no run, or a file of it is damaged.
        """
        path = Path(folder)
        record = run_folder.read_run_record(path / run_folder.RECIPE)
        archives = final = None
        if (path / "archives").exists():
            archives = run_folder.read_record(
                run_folder.ArchivesRecord, path / "archives" / "archives.json"
            )
        if (path / "final.json").exists():
            final = run_folder.read_record(run_folder.FinalRecord, path / "final.json")
        iterations: list[run_folder.IterationRecord] = []
        while (done := path / "iterations" / f"{len(iterations)}.json").exists():
            iteration = run_folder.read_record(run_folder.IterationRecord, done)
            if iteration.number != len(iterations):
                raise RecipeError(
                    f"{done}: expected the record of iteration {len(iterations)}, found that of "
                    f"{iteration.number}"
                )
            iterations.append(iteration)
        evaluated = (
            (number, run_folder.diagnostics(path, number)) for number in range(len(iterations) + 1)
        )
        return cls(
            folder=path,
            options=record.options,
            archives=archives,
            iterations=tuple(iterations),
            diagnostics={
                number: run_folder.read_record(run_folder.Diagnostics, file)
                for number, file in evaluated
                if file.exists()
            },
            final=final,
        )

    @staticmethod
    def writes(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
        """Whether a run in a folder writes, or removes, a file with this path."""
        return run_folder.writes(Path(folder), Path(path))

    @property
    def has_begun(self) -> bool:
        """Whether the first iteration has begun.

        Until then `train_recipe` takes another network, other options and another denominator.
        """
        return _has_begun(self.folder)

    @property
    def schedule(self) -> tuple[Iteration, ...]:
        """All iterations, done or not; none before the archives are made."""
        return () if self.archives is None else schedule(self.options, len(self.archives.frames))

    @property
    def objective(self) -> RunObjective:
        """The objective of the run."""
        return objective_of(self.folder, self.options)

    @property
    def num_frames(self) -> int:
        """Frames of the output that all jobs of the run train on."""
        if self.archives is None:
            return 0
        used = (archive for iteration in self.schedule for archive in iteration.archives)
        return sum(self.archives.frames[archive] for archive in used)

    @property
    def nnet(self) -> Nnet:
        """The final network.

        Raises:
            RecipeError: the run has not ended.
        """
        if self.final is None:
            raise RecipeError(f"{self.folder}: the run has not ended")
        return read_nnet(self.folder / "final.raw")

    def network(self, number: int) -> Path:
        """The path of network `number`; the file is removed when it is no longer needed."""
        return run_folder.network(self.folder, number)


def train_recipe(
    folder: str | os.PathLike[str],
    nnet: Nnet | None = None,
    utterances: Iterable[TrainingData] | None = None,
    options: RecipeOptions | None = None,
    *,
    den_fst: Fst | str | os.PathLike[str] | None = None,
    workers: Workers | None = None,
    devices: Sequence[str] = ("cpu",),
    on_event: Callable[[Event], object] | None = None,
) -> TrainingRun:
    """Trains a network on utterances, or continues an interrupted run in the folder.

    The result is the same network, to the last bit, whichever workers run the jobs and however
    often the run is interrupted. (CUDA devices and processors round differently.) The function does
    not change a run that has ended, unless its network cannot be read: then it is made again. Until
    the first iteration begins, what you give replaces what the folder holds: after a mistake, give
    the right options, and the utterances again.

    Args:
        folder: The folder that keeps the run.
        nnet: The network to begin with; None to continue a run.
        utterances: The training data; read once, or not at all after the first iteration has begun.
            `Utterance` objects; or finished examples, with the context that the network needs, and
            half of the frame subsampling factor more. One of every `held_out_every` utterances is
            held out.
        options: The options; None to continue a run, or for the defaults.
        den_fst: The denominator of a 'chain' model, or the file that has it; None to continue.
        workers: The workers that run the jobs of an iteration; by default this process, one by one.
        devices: The devices of jobs, in turn: "cpu", "cuda", "cuda:<number>", of the machine that
            does the job.
        on_event: The function calls it with each event.

    Raises:
        RecipeError: the folder holds a run that has begun with another network, denominator or
            other options. Or it holds no run, and the network, the denominator or the utterances
            are missing. Or a pattern of the schedule of dropout, or of frozen components, matches
            no component. Or examples do not fit the network, or there is no minibatch of them. Or
            another process trains in the folder.
        NetworkError: the network cannot have such a learning rate, or such a proportion of dropout.
        ExampleError: the network lacks the outputs of a 'chain' model, or the denominator does not
            fit it; or utterances are of another kind, or do not make sense.
        DeviceError: there is no such device.
        WorkerError: workers died at the same job three times.
        TrainingError: training has diverged in all jobs of an iteration.
        Nnet3Error: a file of utterances, or of the run, cannot be read.
    """
    path = Path(folder)
    say = on_event or (lambda event: None)
    workers = workers or InProcess()
    if not devices:
        raise RecipeError("expected a device at least, found none")
    with run_folder.only_trainer(path):
        _begin(path, nnet, options, den_fst, has_data=utterances is not None)
        path = path.absolute()  # workers may be in other folders
        run = TrainingRun.read(path)
        if run.final is not None:
            try:
                _ = run.nnet
            except Nnet3Error:  # then it is made again
                if run.archives is None:
                    raise
            else:
                return run
        if run.archives is None:
            if utterances is None:
                raise RecipeError(f"{path}: expected utterances to train on, found none")
            network = read_nnet(run.network(0))
            make_archives(utterances, network, run.objective, run.options, path / "archives")
            run = TrainingRun.read(path)
        assert run.archives is not None
        say(run.archives)
        for name in ("models", "jobs", "diagnostics", "iterations"):  # the last shows that it began
            (path / name).mkdir(exist_ok=True)
        for iteration in run.schedule[len(run.iterations) :]:
            _iterate(run, iteration, workers, devices, say)
        say(_finish(run, workers, devices))
        return TrainingRun.read(path)


def _begin(
    folder: Path,
    nnet: Nnet | None,
    options: RecipeOptions | None,
    den_fst: Fst | str | os.PathLike[str] | None,
    *,
    has_data: bool,
) -> None:
    """Describes the run in the folder, or checks that the folder's run is the same."""
    record, denominator = folder / run_folder.RECIPE, folder / run_folder.DEN_FST
    network = run_folder.network(folder, 0)
    given = read_fst(den_fst) if isinstance(den_fst, str | os.PathLike) else den_fst
    known = run_folder.read_run_record(record).options if record.exists() else None
    if known is not None and _has_begun(folder):
        _check_same(folder, known, nnet, options, given)
        return
    if known is not None:  # what is not given stays
        nnet, options = read_nnet(network) if nnet is None else nnet, options or known
        if given is None and options.chain is not None and denominator.exists():
            given = read_fst(denominator)
    if nnet is None:
        raise RecipeError(
            f"{folder}: expected a run to continue or a network to train, found neither"
        )
    options = options or RecipeOptions()
    _check_new(nnet, options, given)
    if known is None:
        run_folder.check_free(folder)
    archives = folder / "archives"
    is_same = (
        known == options
        and nnet == read_nnet(network)
        and (given is None or denominator.read_bytes() == vector_bytes(given))
    )
    if archives.exists() and (has_data or not is_same):
        if not has_data:
            raise RecipeError(
                f"{folder}: the examples there are for another network, other options or another "
                "denominator: expected utterances to make them anew"
            )
        files.remove_folder(archives)
    network.parent.mkdir(parents=True, exist_ok=True)
    write_nnet(nnet, network)
    if given is not None:
        write_fst(given, denominator)
    run_folder.write_record(run_folder.RunRecord(options=options), record)


def _has_begun(folder: Path) -> bool:
    """Whether the first iteration of the run in a folder has begun."""
    return (folder / "iterations").exists()


def _check_same(
    folder: Path,
    known: RecipeOptions,
    nnet: Nnet | None,
    options: RecipeOptions | None,
    den_fst: Fst | None,
) -> None:
    """Raises an error if the folder's run, with the options `known`, is not the same."""
    if options is not None and options != known:
        if (known.chain is None) != (options.chain is None):
            what = "no chain model" if known.chain is None else "a chain model"
            raise RecipeError(f"{folder}: the run there is of {what}; give another folder")
        theirs, ours = known.values, options.values
        name = next(name for name in theirs if theirs[name] != ours[name])
        raise RecipeError(
            f"{folder}: the run there has {name} = {theirs[name]}, expected {ours[name]}; give "
            "another folder, or the same options"
        )
    if nnet is not None and nnet != read_nnet(run_folder.network(folder, 0)):
        raise RecipeError(f"{folder}: the run there is of another network")
    if den_fst is not None and known.chain is None:
        raise RecipeError(f"{folder}: the run there is of no chain model, and has no denominator")
    if den_fst is not None and (folder / run_folder.DEN_FST).read_bytes() != vector_bytes(den_fst):
        raise RecipeError(f"{folder}: the run there has another denominator")


def _check_new(nnet: Nnet, options: RecipeOptions, den_fst: Fst | None) -> None:
    """Raises an error if the parts of a new run do not fit each other."""
    if options.chain is None and den_fst is not None:
        raise RecipeError("expected no denominator, because options.chain is None; found one")
    if options.chain is not None:
        if den_fst is None:
            raise RecipeError("expected the denominator of a chain model (den_fst), found none")
        ChainTraining(nnet, den_fst, options.chain)
    rate = max(options.initial_learning_rate, options.final_learning_rate)
    jobs = max(options.num_jobs_initial, options.num_jobs_final)
    editing.set_learning_rate(run_tasks.prepared(nnet, options), rate * jobs)
    for function in options.dropout:
        pattern = function.pattern
        probed = editing.set_dropout_proportion(nnet, max(function.proportions), pattern)
        pairs = zip(nnet.components, probed.components, strict=True)
        if all(one is other for one, other in pairs):
            raise RecipeError(
                f"dropout_schedule: expected components with dropout with names like '{pattern}', "
                "found none"
            )


def _iterate(
    run: TrainingRun,
    iteration: Iteration,
    workers: Workers,
    devices: Sequence[str],
    say: Callable[[Event], object],
) -> None:
    """Makes the next network, and evaluates the one before."""
    start = time.perf_counter()
    folder, options, number = run.folder, run.options, iteration.number
    network, num_jobs = run.network(number), len(iteration.archives)
    tasks: list[run_tasks.Task] = [
        partial(run_tasks.train_job, folder, options, iteration, job, devices[job % len(devices)])
        for job in range(num_jobs)
    ]
    evaluated = run_folder.diagnostics(folder, number)
    if not evaluated.exists():
        device = devices[num_jobs % len(devices)]
        tasks.append(partial(run_tasks.evaluate, folder, options, network, device))
    jobs = []
    for result in workers.map(run_tasks.do, tasks):
        if isinstance(result, run_folder.JobRecord):
            jobs.append(result)
            say(result)
        else:
            run_folder.write_record(result, evaluated)
    diverged = run_folder.diverged_jobs(jobs, options.max_objective_difference)
    if len(diverged) == len(jobs):
        which = f"all {len(jobs)} jobs" if len(jobs) > 1 else "its job"
        raise TrainingError(
            f"{folder}: iteration {number + 1} of {len(run.schedule)}: training has diverged "
            f"in {which}. Job 1: {diverged[0]}"
        )
    nnets = [
        read_nnet(run_folder.job_network(folder, number, job))
        for job in range(num_jobs)
        if job not in diverged
    ]
    average = run_tasks.kept(
        nnets[0], editing.weighted_sum(nnets, np.full(len(nnets), 1.0 / len(nnets))), options
    )
    write_nnet(average, run.network(number + 1))
    record = run_folder.IterationRecord(
        number=number,
        learning_rate=iteration.learning_rate,
        jobs=tuple(jobs),
        changes=_relative_changes(read_nnet(network), average),
        saturation={} if options.fine_tuning else saturation(average),
        seconds=time.perf_counter() - start,
        dropout=iteration.dropout,
        diverged=diverged,
    )
    run_folder.write_record(record, folder / "iterations" / f"{number}.json")
    say(record)
    needed = min(number + 1, first_combined(options, len(run.schedule)))
    run_folder.tidy(folder, needed)


def _relative_changes(old: Nnet, new: Nnet) -> dict[str, float]:
    """By component with parameters, the norm of their change, relative to their norm before.

    A component is left out if its parameters were all zero and are not any more.
    """
    changes = {}
    for name, before, after in zip(
        old.component_names, old.components, new.components, strict=True
    ):
        arrays, others = before.parameter_arrays(), after.parameter_arrays()
        if arrays:
            size = sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays.values())
            moved = sum(
                float(np.square(others[key] - array.astype(np.float64)).sum())
                for key, array in arrays.items()
            )
            if size or not moved:
                changes[name] = float(np.sqrt(moved / size)) if size else 0.0
    return changes


def _finish(run: TrainingRun, workers: Workers, devices: Sequence[str]) -> run_folder.FinalRecord:
    """Evaluates the last network, and averages the last ones."""
    folder, options, last = run.folder, run.options, len(run.schedule)
    combined = range(last, first_combined(options, last) - 1, -1)
    tasks: list[run_tasks.Task] = [
        partial(run_tasks.evaluate, folder, options, run.network(last), devices[0]),
        partial(run_tasks.combine_networks, folder, options, combined, devices[-1]),
    ]
    diagnostics, final = workers.map(run_tasks.do, tasks)
    run_folder.write_record(diagnostics, run_folder.diagnostics(folder, last))
    run_folder.write_record(final, folder / "final.json")
    return cast(run_folder.FinalRecord, final)
