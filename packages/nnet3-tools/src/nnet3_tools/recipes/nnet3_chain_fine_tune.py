"""nnet3-chain-fine-tune: trains a trained chain model further, in a folder, and resumes runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
from nnet3_training.recipes import FINE_TUNING

from nnet3_tools.kaldi_command import KaldiCommand, log, logged, run_tool
from nnet3_tools.recipes.recipe_runs import (
    Surroundings,
    recipe_options,
    run_options,
    run_recipe,
    wanted_options,
)
from nnet3_tools.recipes.tuning_data import (
    SUBSAMPLING,
    Origin,
    TuningData,
    denominator_of,
    examples_of,
    named_denominator,
    transcripts_of,
    tuning_data_options,
    utterances_of,
)

if TYPE_CHECKING:
    from nnet3_training import TrainingExample
    from nnet3_training.chain import ChainUtterance

NAME = "nnet3-chain-fine-tune"


@click.command(cls=KaldiCommand)
@click.argument("model_in", metavar="MODEL")
@click.argument("folder", metavar="DIR")
@tuning_data_options
@click.option(
    "--freeze",
    multiple=True,
    metavar="PATTERN",
    help="Components that do not change, such as 'tdnnf1*'; may be given several times.",
)
@recipe_options(
    {**FINE_TUNING, "frame_subsampling_factor": SUBSAMPLING},
    "frames_per_example",
    "dropout_schedule",
)
@run_options
def command(model_in: str, folder: str, freeze: tuple[str, ...], **options: Any) -> None:
    """Train the chain model MODEL for a few epochs in the folder DIR, or continue the run there.

    MODEL is a .mdl file or a folder that has final.mdl. The training data are --features, --text
    and --lexicon; no alignments are needed. Or they are --egs; then MODEL may be a .raw file. To
    continue, give the same again, or MODEL and DIR alone once the examples are made. Until the
    first iteration begins, what you give replaces what you gave before. The result is
    DIR/final.mdl, or final.raw if MODEL is a .raw file. It differs from MODEL in its parameters
    only, and is the same to the last bit, however often the run was interrupted.
    """
    from nnet3_training.recipes import TrainingRun, fine_tuning_options

    path = Path(folder)
    data = TuningData(**{name: options.pop(name) for name in attrs.fields_dict(TuningData)})
    around = Surroundings(**{name: options.pop(name) for name in attrs.fields_dict(Surroundings)})
    given = {name: value for name, value in options.items() if value is not None}
    if freeze:
        given["freeze"] = freeze
    if path.exists() and not path.is_dir():
        raise click.UsageError(f"expected a folder for the run, found the file '{folder}'")
    has_run, has_examples = (path / "recipe.json").exists(), (path / "archives").is_dir()
    if not (has_run and has_examples) or data.is_given:
        data.check()
    origin = Origin.read(model_in)
    is_new = not has_run or (data.is_given and not TrainingRun.read(path).has_begun)
    usual = None
    if is_new:
        step = 1 if data.egs else origin.frame_subsampling_factor
        usual = fine_tuning_options(origin.nnet, frame_subsampling_factor=step)
    wanted = wanted_options(path, usual, given)
    used = wanted or TrainingRun.read(path).options
    utterances: Iterator[TrainingExample | ChainUtterance] | None = None
    den_fst = named_denominator(data, origin)
    if data.egs:
        utterances = examples_of(data.egs)
    elif data.is_given and (is_new or not has_examples):
        transcripts = transcripts_of(data, origin)
        if den_fst is None:
            den_fst = denominator_of(NAME, transcripts, used.seed)
        utterances = utterances_of(NAME, data, origin, transcripts, used.frame_subsampling_factor)
    with logged(NAME, "nnet3_training.chain"):
        run = run_recipe(NAME, path, origin.nnet, utterances, wanted, den_fst, around)
    if origin.model is not None:
        tuned = attrs.evolve(origin.model, nnet=run.nnet)
        nnet3_descriptors.write_acoustic_model(tuned, path / "final.mdl")
        log(NAME, f"Wrote model to {path / 'final.mdl'}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
