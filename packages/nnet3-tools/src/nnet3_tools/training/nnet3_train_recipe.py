"""nnet3-train-recipe: trains a network from features and labels, in a folder where it can go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
from nnet3_descriptors import Nnet, parse_config, read_nnet
from nnet3_descriptors.files import write_atomically
from nnet3_training import SparsePosteriors
from nnet3_training.egs import Utterance, posteriors, read_alignment, read_posterior
from nnet3_training.recipes import (
    ArchivesRecord,
    FinalRecord,
    IterationRecord,
    JobRecord,
    RecipeOptions,
    TrainingRun,
    train_recipe,
)

from nnet3_tools.chosen_workers import DASK, chosen_workers
from nnet3_tools.egs.splitting import ExampleMaker, ObjectLookup
from nnet3_tools.kaldi_command import KaldiCommand, common_options, log, run_tool
from nnet3_tools.report import training_page
from nnet3_tools.streams import read_text, readable

NAME = "nnet3-train-recipe"

_HELP = {
    "num_epochs": "How often each example is used.",
    "num_jobs_initial": "Jobs of the first iteration.",
    "num_jobs_final": "Jobs of the last iteration.",
    "initial_learning_rate": "Effective learning rate at the beginning.",
    "final_learning_rate": "Effective learning rate at the end.",
    "momentum": "Part of the last change that the next one contains.",
    "max_param_change": "Largest change of all parameters in one step (2-norm).",
    "minibatch_size": "Sizes of minibatches, as for nnet3-merge-egs.",
    "frames_per_example": "Frames of an example; several numbers with commas if wanted.",
    "frames_per_archive": "Approximate number of frames in the archive of a job.",
    "shuffle_buffer_size": "Examples in memory, from which the next is drawn.",
    "compress": "Compress features that are not compressed yet.",
    "held_out_every": "Hold out one of every N utterances for diagnostics.",
    "diagnostic_examples": "Training examples, and as many held-out ones, for diagnostics.",
    "max_models_combine": "Greatest number of last networks to average at the end.",
    "seed": "Seed of the random numbers.",
}


def _lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected numbers with commas between, got '{text}'") from None


def recipe_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each of `RecipeOptions`; None stands for what was not given."""
    for field in reversed(attrs.fields(RecipeOptions)):
        usual: Any = field.default
        is_lengths = isinstance(usual, tuple)
        default = ",".join(map(str, usual)) if is_lengths else str(usual)
        function = click.option(
            f"--{field.name.replace('_', '-')}",
            type=str if is_lengths else type(usual),
            default=None,
            callback=_lengths if is_lengths else None,
            help=f"{_HELP[field.name]}  [default: {default.lower()}]",
        )(function)
    return function


@click.command(cls=KaldiCommand)
@click.argument("folder", metavar="DIR")
@click.option("--nnet-config", metavar="FILE", help="Config lines of the network to train.")
@click.option(
    "--nnet", "nnet_in", metavar="FILE", help="The network to train, instead of --nnet-config."
)
@click.option("--features", metavar="RSPECIFIER", help="Features of the utterances.")
@click.option("--alignments", metavar="RSPECIFIER", help="The class of each frame, a number.")
@click.option(
    "--posteriors",
    metavar="RSPECIFIER",
    help="Classes with weights of each frame, instead of --alignments.",
)
@click.option("--online-ivectors", default="", metavar="RSPECIFIER", help="I-vectors, if any.")
@click.option("--online-ivector-period", default=10, help="Frames for each i-vector.")
@recipe_options
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of processes that train.",
)
@DASK
@click.option("--report", metavar="FILE", help="Write a page about the run after each iteration.")
@common_options
def command(
    folder: str,
    nnet_config: str | None,
    nnet_in: str | None,
    features: str | None,
    alignments: str | None,
    posteriors: str | None,
    online_ivectors: str,
    online_ivector_period: int,
    jobs: int,
    dask: str | None,
    report: str | None,
    **options: Any,
) -> None:
    """Train a network from scratch in the folder DIR, or go on with the run there.

    A new run needs --nnet-config or --nnet, --features, and --alignments or --posteriors; one that
    goes on needs DIR alone. The result is DIR/final.raw: the same, to the last bit, whatever --jobs
    and --dask say, and however often the run was broken off.
    """
    is_new = not (Path(folder) / "recipe.json").exists()
    given = {name: value for name, value in options.items() if value is not None}
    wanted = RecipeOptions(**given) if is_new else None
    if not is_new and given:
        wanted = attrs.evolve(TrainingRun.read(folder).options, **given)
    if is_new and not (nnet_config or nnet_in):
        raise click.UsageError(f"'{folder}' holds no run: give --nnet-config or --nnet")
    if nnet_config and nnet_in:
        raise click.UsageError("expected --nnet-config or --nnet, got both")
    nnet = None
    if nnet_config or nnet_in:
        seed = (wanted or TrainingRun.read(folder).options).seed
        nnet = _network(nnet_config, nnet_in, seed)
    utterances = None
    if features:
        known = nnet or read_nnet(Path(folder) / "models" / "0.raw")
        utterances = _utterances(
            features,
            _labels(alignments, posteriors, known.node_dim("output")),
            {
                "online_ivectors": online_ivectors,
                "online_ivector_period": online_ivector_period,
                "length_tolerance": 100,
                "targets_length_tolerance": 2,
                "frame_subsampling_factor": 1,
            },
        )
    elif is_new:
        raise click.UsageError("expected --features, which a new run needs")
    with _Progress(Path(folder), report) as progress, chosen_workers(jobs, dask) as workers:
        run = train_recipe(
            folder, nnet, utterances, wanted, workers=workers, on_event=progress.take
        )
    log(NAME, f"the run in '{folder}' has ended; the network is {run.folder / 'final.raw'}")
    if report is not None:
        write_report(Path(folder), report)


def _network(nnet_config: str | None, nnet_in: str | None, seed: int) -> Nnet:
    if nnet_config:
        return parse_config(read_text(nnet_config), rng=np.random.default_rng(seed))
    assert nnet_in is not None
    with readable(nnet_in) as source:
        return read_nnet(source)


Labels = Callable[[str], SparsePosteriors | None]


def _labels(alignments: str | None, posteriors_in: str | None, dim: int) -> Labels:
    """What is known of the frames of an utterance."""
    if (alignments is None) == (posteriors_in is None):
        raise click.UsageError("expected either --alignments or --posteriors")
    if alignments is not None:
        classes = ObjectLookup(alignments, read_alignment)

        def of_alignment(key: str) -> SparsePosteriors | None:
            found = classes.take(key)
            if found is None:
                return None
            return posteriors([[(int(number), 1.0)] for number in found], dim)

        return of_alignment
    assert posteriors_in is not None
    weighted = ObjectLookup(posteriors_in, read_posterior)

    def of_posterior(key: str) -> SparsePosteriors | None:
        frames = weighted.take(key)
        return posteriors(frames, dim) if frames else None

    return of_posterior


def _utterances(features: str, labels: Labels, options: dict[str, Any]) -> Iterator[Utterance]:
    maker = ExampleMaker(tool=NAME, what="label", supervision=labels, options=options)
    return maker.utterances(features)


def write_report(folder: Path, path: str) -> None:
    """Writes the page about a run.

    Raises:
        RecipeError: a file of the run is damaged.
        FileError: the page cannot be written.
    """
    page = training_page(folder.resolve().name, TrainingRun.read(folder))
    write_atomically(path, [page.encode()])


class _Progress:
    """Says what was done, shows a bar on a terminal, and keeps the page up to date."""

    def __init__(self, folder: Path, report: str | None) -> None:
        self._folder, self._report = folder, report
        self._bar: Any = None
        self._total = 0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def take(self, event: ArchivesRecord | JobRecord | IterationRecord | FinalRecord) -> None:
        """Takes what the run says of itself."""
        match event:
            case ArchivesRecord():
                self._begin(event)
            case JobRecord():
                if self._bar is not None:
                    self._bar.update(event.frames)
            case IterationRecord():
                self._say_iteration(event)
            case FinalRecord():
                self._say_end(event)

    def _begin(self, archives: ArchivesRecord) -> None:
        run = TrainingRun.read(self._folder)
        self._total = len(run.schedule)
        done = sum(job.frames for record in run.iterations for job in record.jobs)
        self._say(
            f"{archives.utterances} utterances, {sum(archives.examples)} examples in "
            f"{len(archives.frames)} archives; {len(run.iterations)} of {self._total} iterations "
            "are done"
        )
        if sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm  # takes a while to import

            self._bar = tqdm(
                total=run.num_frames,
                initial=done,
                unit=" frames",
                unit_scale=True,
                file=sys.stderr,
                leave=False,
            )

    def _say_iteration(self, record: IterationRecord) -> None:
        figures = [figure for job in record.jobs for figure in job.figures.values()]
        weight = sum(figure.frames for figure in figures)
        objective = sum(figure.per_frame * figure.frames for figure in figures) / max(weight, 1.0)
        if self._bar is not None:
            self._bar.set_postfix_str(f"iteration {record.number + 1}, objective {objective:.4g}")
        jobs = "1 job" if len(record.jobs) == 1 else f"{len(record.jobs)} jobs"
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

    def _say(self, line: str) -> None:
        if self._bar is None:
            log(NAME, line)
            return
        self._bar.clear()
        log(NAME, line)
        self._bar.refresh()


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
