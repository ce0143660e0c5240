"""nnet3-train-recipe: trains a network from features and labels in a folder, and resumes runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.bar import Bar
from nnet3_tools.chain.options import CHAIN_NUMBERS, read_den_fst
from nnet3_tools.chosen_workers import DASK, chosen_workers
from nnet3_tools.kaldi_command import KaldiCommand, log, run_tool, say
from nnet3_tools.streams import read_text, readable, understanding
from nnet3_tools.training.recipe_data import DataOptions, data_options

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training.recipes import (
        ArchivesRecord,
        FinalRecord,
        IterationRecord,
        JobRecord,
        RecipeOptions,
    )

NAME = "nnet3-train-recipe"

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


def recipe_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each number of `RecipeOptions` and `ChainOptions`; None if not given."""
    from nnet3_training.recipes import RecipeOptions

    fields = [field for field in attrs.fields(RecipeOptions) if field.name in _HELP]
    fields += [
        field for field in attrs.fields(nnet3_training.ChainOptions) if field.name in CHAIN_NUMBERS
    ]
    for field in reversed(fields):
        usual: Any = field.default
        is_lengths = isinstance(usual, tuple)
        default = ",".join(map(str, usual)) if is_lengths else str(usual)
        text = _HELP.get(field.name) or CHAIN_NUMBERS[field.name]
        function = click.option(
            f"--{field.name.replace('_', '-')}",
            type=str if is_lengths else type(usual),
            default=None,
            callback=_lengths if is_lengths else None,
            help=f"{text}  [default: {default.lower() or 'none'}]",
        )(function)
    return function


def _wanted(
    folder: Path, *, is_new: bool, has_den_fst: bool, given: dict[str, Any]
) -> RecipeOptions | None:
    """The options on the command line; None to go on with the options of the folder."""
    from nnet3_training.recipes import RecipeOptions, TrainingRun

    chain = {name: given.pop(name) for name in CHAIN_NUMBERS if name in given}
    if is_new:
        if chain and not has_den_fst:
            name = next(iter(chain)).replace("_", "-")
            raise click.UsageError(f"--{name} is for chain models, which need --den-fst")
        options = nnet3_training.ChainOptions(**chain) if has_den_fst else None
        return RecipeOptions(**given, chain=options)
    if not given and not chain:
        return None
    found = TrainingRun.read(folder).options
    if chain:
        given["chain"] = attrs.evolve(found.chain or nnet3_training.ChainOptions(), **chain)
    return attrs.evolve(found, **given)


@click.command(cls=KaldiCommand)
@click.argument("folder", metavar="DIR")
@click.option("--nnet-config", metavar="FILE", help="Config lines of the network to train.")
@click.option(
    "--nnet", "nnet_in", metavar="FILE", help="The network to train, instead of --nnet-config."
)
@data_options
@click.option(
    "--den-fst", metavar="FILE", help="The denominator; with it the network is a chain model."
)
@recipe_options
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes that train.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="NAMES",
    help="Where jobs compute, in turn: 'cpu', 'cuda', or several as in 'cuda:0,cuda:1'.",
)
@DASK
@click.option("--report", metavar="FILE", help="Write a page about the run after each iteration.")
def command(
    folder: str,
    nnet_config: str | None,
    nnet_in: str | None,
    den_fst: str | None,
    jobs: int,
    device: str,
    dask: str | None,
    report: str | None,
    **options: Any,
) -> None:
    """Train a network from scratch in the folder DIR, or continue the run there.

    A new run needs --nnet-config or --nnet, and data: --features with --alignments, --posteriors or
    --targets; for a chain model --features with --supervisions, and --den-fst; or --egs. To
    continue, give the same again, or DIR alone once the examples are made. Until the first
    iteration begins, what you give replaces what you gave before. The result is DIR/final.raw. It
    is the same to the last bit, whatever --jobs and --dask are, and however often the run was
    interrupted.
    """
    from nnet3_training.recipes import TrainingRun, train_recipe

    path = Path(folder)
    names = [field.name for field in attrs.fields(DataOptions)[1:]]
    data = DataOptions(tool=NAME, **{name: options.pop(name) for name in names})
    given = {name: value for name, value in options.items() if value is not None}
    if path.exists() and not path.is_dir():
        raise click.UsageError(f"expected a folder for the run, found the file '{folder}'")
    has_network, has_run = bool(nnet_config or nnet_in), (path / "recipe.json").exists()
    if not (has_run or has_network):
        raise click.UsageError(f"'{folder}' holds no run: give --nnet-config or --nnet")
    if nnet_config and nnet_in:
        raise click.UsageError("expected --nnet-config or --nnet, got both")
    if not (has_run or data.is_given):
        raise click.UsageError("expected --features or --egs, which a new run needs")
    if has_run and not data.is_given and not (path / "archives").is_dir():
        raise click.UsageError(
            f"the run in '{folder}' has not made its examples: give --features or --egs again"
        )
    is_new = not has_run or (has_network and not TrainingRun.read(folder).has_begun)
    wanted = _wanted(path, is_new=is_new, has_den_fst=den_fst is not None, given=given)
    used = wanted or TrainingRun.read(folder).options
    nnet = _network(nnet_config, nnet_in, used.seed) if has_network else None
    utterances = None
    if data.is_given:
        is_chain = used.chain is not None
        data.check(is_chain=is_chain)
        known = nnet or nnet3_descriptors.read_nnet(path / "models" / "0.raw")
        step = used.frame_subsampling_factor
        utterances = data.read(known.node_dim("output"), step, is_chain=is_chain)
    with _Progress(path, report) as progress, chosen_workers(jobs, dask) as workers:
        run = train_recipe(
            folder,
            nnet,
            utterances,
            wanted,
            den_fst=None if den_fst is None else read_den_fst(den_fst),
            workers=workers,
            devices=[name.strip() for name in device.split(",") if name.strip()],
            on_event=progress.take,
        )
    log(NAME, f"the run in '{folder}' has ended; the network is {run.folder / 'final.raw'}")
    if report is not None:
        write_report(path, report)


def _network(nnet_config: str | None, nnet_in: str | None, seed: int) -> Nnet:
    import numpy as np

    if nnet_config:
        text = read_text(nnet_config)
        with understanding(nnet_config):
            return nnet3_descriptors.parse_config(text, rng=np.random.default_rng(seed))
    assert nnet_in is not None
    with readable(nnet_in) as source:
        return nnet3_descriptors.read_nnet(source)


def write_report(folder: Path, path: str) -> None:
    """Writes the page about a run.

    Raises:
        RecipeError: A file of the run is damaged.
        FileError: The page cannot be written.
    """
    from nnet3_descriptors.files import write_atomically
    from nnet3_report.pages import training_page
    from nnet3_training.recipes import TrainingRun

    page = training_page(folder.resolve().name, TrainingRun.read(folder))
    write_atomically(path, [page.encode()])


class _Progress:
    """Reports the progress of a run: lines, a bar on a terminal, and the page of the report."""

    def __init__(self, folder: Path, report: str | None) -> None:
        self._folder, self._report = folder, report
        self._bar: Bar | None = None
        self._total = 0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def take(self, event: ArchivesRecord | JobRecord | IterationRecord | FinalRecord) -> None:
        """Reports an event of the run."""
        from nnet3_training.recipes import ArchivesRecord, FinalRecord, IterationRecord, JobRecord

        match event:
            case ArchivesRecord():
                self._begin(event)
            case JobRecord():
                if self._bar is not None:
                    self._bar.advance(event.frames)
            case IterationRecord():
                self._say_iteration(event)
            case FinalRecord():
                self._say_end(event)

    def _begin(self, archives: ArchivesRecord) -> None:
        from nnet3_training.recipes import TrainingRun

        run = TrainingRun.read(self._folder)
        self._total = len(run.schedule)
        done = sum(job.frames for record in run.iterations for job in record.jobs)
        self._say(
            f"{archives.utterances} utterances, {sum(archives.examples)} examples in "
            f"{len(archives.frames)} archives; {len(run.iterations)} of {self._total} iterations "
            "are done"
        )
        self._bar = Bar(run.num_frames, " frames", done=done, with_prefixes=True)

    def _say_iteration(self, record: IterationRecord) -> None:
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
        self._say(
            f"iteration {record.number + 1} of {self._total}: {jobs}, learning rate "
            f"{record.learning_rate:.4g}, objective {objective:.6g} per frame, "
            f"{record.seconds:.1f} s"
        )
        if self._report is not None:
            write_report(self._folder, self._report)

    def _say_end(self, record: FinalRecord) -> None:
        for name, figure in record.diagnostics.held_out.items():
            right = "" if figure.accuracy is None else f", {figure.accuracy:.1%} of frames right"
            self._say(
                f"the average of the last {record.num_models} networks has an objective of "
                f"{figure.per_frame:.6g} per frame at '{name}' on held-out examples{right}"
            )

    def _say(self, line: str, level: str = "LOG") -> None:
        text = f"{level} ({NAME}) {line}"
        if self._bar is None:
            say(text)
        else:
            self._bar.say(text)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
