"""Runs of training in a folder, as tools begin and continue them: options, progress, the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_training
from nnet3_training import recipes

from nnet3_tools import cli, flags, streams
from nnet3_tools.progress import Bar
from nnet3_tools.training.train import CHAIN_NUMBERS

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_HELP = {
    "num_epochs": "How often each example is used.",
    "num_jobs_initial": "Jobs of the first iteration.",
    "num_jobs_final": "Jobs of the last iteration.",
    "initial_learning_rate": "Effective learning rate at the beginning.",
    "final_learning_rate": "Effective learning rate at the end.",
    "momentum": "Share of the last change of parameters to add to the next.",
    "max_param_change": "Largest change of all parameters in one step (2-norm).",
    "minibatch_size": "Sizes of minibatches, as for nnet3-merge-egs.",
    "frames_per_example": "Frames of the input that the output of an example covers; several "
    "numbers with commas if wanted.",
    "frames_per_archive": "Approximate number of frames in the archive of a job.",
    "shuffle_buffer_size": "Examples in memory, from which the next is drawn.",
    "compress": "Compress features that are not compressed yet.",
    "held_out_every": "Hold out one of every N utterances for diagnostics.",
    "diagnostic_examples": "Number of training examples, and of held-out ones, for diagnostics.",
    "max_models_combine": "Greatest number of last networks to average at the end.",
    "seed": "Seed of the random numbers.",
    "frame_subsampling_factor": "Frames of the input for each frame of the output.",
    "max_objective_difference": "Leave a job out of the average whose objective per frame is that "
    "much worse than that of the best job.",
    "dropout_schedule": "Dropout proportions by the share of the data used so far, as in Kaldi: "
    "0,0@0.2,0.5@0.5,0.",
}


def _lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected numbers with commas between, got '{text}'") from None


def recipe_options(usual: Mapping[str, Any], *left_out: str) -> Iterator[cli.Parameter]:
    """An option for each number of a run; None if not given.

    Args:
        usual: The defaults, as the help shows them, that are not those of `RecipeOptions`.
        left_out: Options of `RecipeOptions` that the tool does not have.
    """
    chain = usual.get("chain", nnet3_training.ChainOptions())
    values = {field.name: field.default for field in attrs.fields(recipes.RecipeOptions)} | dict(
        usual
    )
    values |= attrs.asdict(chain)
    texts = {name: _HELP[name] for name in _HELP if name not in left_out} | CHAIN_NUMBERS

    for name in sorted(texts, key=list(values).index):
        value = values[name]
        is_lengths = isinstance(value, tuple)
        default = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield cli.option(
            f"--{name.replace('_', '-')}",
            None,
            f"{texts[name]}  [default: {default.lower() or 'none'}]",
            type=str if is_lengths else type(value),
            callback=_lengths if is_lengths else None,
        )


RUN_OPTIONS = (
    cli.option("--jobs", 1, "Number of processes that train.", least=1, shown=True),
    cli.option(
        "--device",
        "cpu",
        "Where jobs compute, in turn: 'cpu', 'cuda', or several as in 'cuda:0,cuda:1'.",
        "NAMES",
        shown=True,
    ),
    flags.DASK,
    flags.CACHE_DIR,
    cli.option("--report", None, "Write a page about the run after each iteration.", "FILE"),
)
"""Where a run computes, and what it shows: further arguments of `run_recipe`."""

RUN_NAMES = ("jobs", "device", "dask", "report")
"""The names of their values."""


def wanted_options(
    folder: Path, usual: recipes.RecipeOptions | None, given: dict[str, Any]
) -> recipes.RecipeOptions | None:
    """The options on the command line; None to go on with the options of the folder.

    Args:
        folder: The folder of the run.
        usual: The options of a new run where they are not given; None to continue a run.
        given: The options that are given, those of the objective among them.
    """
    chain = {name: given.pop(name) for name in CHAIN_NUMBERS if name in given}
    if usual is None:
        if not given and not chain:
            return None
        usual = recipes.TrainingRun.read(folder).options
    if chain:
        given["chain"] = attrs.evolve(usual.chain or nnet3_training.ChainOptions(), **chain)
    return attrs.evolve(usual, **given)


def run_recipe(
    folder: Path,
    nnet: Nnet | None,
    utterances: Iterable[recipes.TrainingData] | None,
    options: recipes.RecipeOptions | None,
    den_fst: nnet3_training.Fst | None,
    *,
    has_data: bool,
    jobs: int,
    device: str,
    dask: str | None,
    report: str | None,
) -> recipes.TrainingRun:
    """Begins or continues a run, and reports its progress; see `train_recipe`.

    Args:
        folder: The folder.
        nnet: The network, as the next three for a new run.
        utterances: The training data.
        options: The options.
        den_fst: The denominator of a chain model.
        has_data: Whether the command line names training data; warns if they are not read.
        jobs: Number of processes.
        device: Names of devices, with commas between.
        dask: Address of a Dask cluster, if any.
        report: The file of the page, if any.
    """
    if report is not None:
        if recipes.TrainingRun.writes(folder, report):
            raise click.UsageError(
                f"--report: expected a file that the run does not write itself, got '{report}'"
            )
        streams.check_page(report)
    if has_data and _has_begun(folder):
        cli.warn(
            f"the run in '{folder}' has its examples, and does not read the data that are given; "
            "to train on other data, give another folder"
        )
    workers_of = flags.chosen_workers(jobs, dask)
    with _Progress(folder, report) as progress, workers_of as workers:
        run = recipes.train_recipe(
            folder,
            nnet,
            utterances,
            options,
            den_fst=den_fst,
            workers=workers,
            devices=[name.strip() for name in device.split(",") if name.strip()],
            on_event=progress.take,
        )
    cli.log(f"the run in '{folder}' has ended; the network is {run.folder / 'final.raw'}")
    if report is not None:
        write_report(folder, report)
    return run


def _has_begun(folder: Path) -> bool:
    """Whether a folder has a run whose first iteration has begun."""
    return (folder / "recipe.json").exists() and recipes.TrainingRun.read(folder).has_begun


def write_report(folder: Path, path: str) -> None:
    """Writes the page about a run.

    Raises:
        RecipeError: A file of the run is damaged.
        FileError: The page cannot be written.
    """
    from nnet3_descriptors.files import write_atomically
    from nnet3_report.pages import training_page

    page = training_page(folder.resolve().name, recipes.TrainingRun.read(folder))
    write_atomically(path, [page.encode()])


class _Progress:
    """Reports the progress of a run: lines, a bar on a terminal, and the page of the report."""

    def __init__(self, folder: Path, report: str | None) -> None:
        self._tool, self._folder, self._report = cli.running(), folder, report
        self._bar: Bar | None = None
        self._total = 0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def take(
        self,
        event: recipes.ArchivesRecord
        | recipes.JobRecord
        | recipes.IterationRecord
        | recipes.FinalRecord,
    ) -> None:
        """Reports an event of the run."""
        match event:
            case recipes.ArchivesRecord():
                self._begin(event)
            case recipes.JobRecord():
                if self._bar is not None:
                    self._bar.advance(event.frames)
            case recipes.IterationRecord():
                self._say_iteration(event)
            case recipes.FinalRecord():
                self._say_end(event)

    def _begin(self, archives: recipes.ArchivesRecord) -> None:

        run = recipes.TrainingRun.read(self._folder)
        self._total = len(run.schedule)
        done = sum(job.frames for record in run.iterations for job in record.jobs)
        self._say(
            f"{archives.utterances} utterances, {sum(archives.examples)} examples in "
            f"{len(archives.frames)} archives; {len(run.iterations)} of {self._total} iterations "
            "are done"
        )
        self._bar = Bar(run.num_frames, " frames", done=done, with_prefixes=True)

    def _say_iteration(self, record: recipes.IterationRecord) -> None:
        # Only the main output; a chain model also has one for cross-entropy.
        figures = [
            figure
            for job in record.averaged
            for name, figure in job.figures.items()
            if not name.endswith("-xent")
        ]
        weight = sum(figure.frames for figure in figures)
        objective = sum(figure.per_frame * figure.frames for figure in figures) / max(weight, 1.0)
        if self._bar is not None:
            self._bar.advance(0, f"iteration {record.number + 1}, objective {objective:.4g}")
        count = len(record.jobs)
        for job, reason in record.diverged.items():
            self._say(
                f"iteration {record.number + 1} of {self._total}: job {job + 1} of {count} "
                f"diverged and is left out of the average: {reason}",
                "WARNING",
            )
        jobs = "1 job" if count == 1 else f"{count} jobs"
        if record.diverged:
            jobs += f", {len(record.averaged)} of them averaged"
        held_out = [
            figure.per_frame
            for name, figure in self._held_out(record.number).items()
            if not name.endswith("-xent")
        ]
        before = f", held-out before it {held_out[0]:.6g}" if len(held_out) == 1 else ""
        self._say(
            f"iteration {record.number + 1} of {self._total}: {jobs}, learning rate "
            f"{record.learning_rate:.4g}, objective {objective:.6g} per frame{before}, "
            f"{record.seconds:.1f} s"
        )
        if self._report is not None:
            write_report(self._folder, self._report)

    def _held_out(self, number: int) -> dict[str, recipes.Figure]:
        """The objectives of a network on held-out examples."""
        found = recipes.TrainingRun.read(self._folder).diagnostics.get(number)
        return {} if found is None else found.held_out

    def _say_end(self, record: recipes.FinalRecord) -> None:
        for name, figure in record.diagnostics.held_out.items():
            right = "" if figure.accuracy is None else f", {figure.accuracy:.1%} of frames right"
            self._say(
                f"the average of the last {record.num_models} networks has an objective of "
                f"{figure.per_frame:.6g} per frame at '{name}' on held-out examples{right}"
            )

    def _say(self, line: str, level: str = "LOG") -> None:
        text = f"{level} ({self._tool}) {line}"
        if self._bar is None:
            cli.say(text)
        else:
            self._bar.say(text)
