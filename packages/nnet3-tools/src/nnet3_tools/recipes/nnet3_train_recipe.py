"""nnet3-train-recipe: trains a network from features and labels in a folder, and resumes runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.chain.options import CHAIN_NUMBERS, read_den_fst
from nnet3_tools.kaldi_command import KaldiCommand, run_tool
from nnet3_tools.recipes.recipe_data import DataOptions, data_options
from nnet3_tools.recipes.recipe_runs import (
    Surroundings,
    recipe_options,
    run_options,
    run_recipe,
    wanted_options,
)
from nnet3_tools.streams import read_text, readable, understanding

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training.recipes import RecipeOptions

NAME = "nnet3-train-recipe"


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
@recipe_options({})
@run_options
def command(
    folder: str,
    nnet_config: str | None,
    nnet_in: str | None,
    den_fst: str | None,
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
    from nnet3_training.recipes import TrainingRun

    path = Path(folder)
    names = [field.name for field in attrs.fields(DataOptions)[1:]]
    data = DataOptions(tool=NAME, **{name: options.pop(name) for name in names})
    around = Surroundings(**{name: options.pop(name) for name in attrs.fields_dict(Surroundings)})
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
    wanted = wanted_options(path, _usual(den_fst, given) if is_new else None, given)
    used = wanted or TrainingRun.read(folder).options
    nnet = _network(nnet_config, nnet_in, used.seed) if has_network else None
    utterances = None
    if data.is_given:
        is_chain = used.chain is not None
        data.check(is_chain=is_chain)
        known = nnet or nnet3_descriptors.read_nnet(path / "models" / "0.raw")
        step = used.frame_subsampling_factor
        utterances = data.read(known.node_dim("output"), step, is_chain=is_chain)
    denominator = None if den_fst is None else read_den_fst(den_fst)
    run_recipe(NAME, path, nnet, utterances, wanted, denominator, around)


def _usual(den_fst: str | None, given: dict[str, Any]) -> RecipeOptions:
    """The defaults of a new run.

    Raises:
        click.UsageError: There are options for chain models, and no denominator.
    """
    from nnet3_training.recipes import RecipeOptions

    if den_fst is not None:
        return RecipeOptions(chain=nnet3_training.ChainOptions())
    for name in CHAIN_NUMBERS:
        if name in given:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for chain models, which need --den-fst")
    return RecipeOptions()


def _network(nnet_config: str | None, nnet_in: str | None, seed: int) -> Nnet:
    import numpy as np

    if nnet_config:
        text = read_text(nnet_config)
        with understanding(nnet_config):
            return nnet3_descriptors.parse_config(text, rng=np.random.default_rng(seed))
    assert nnet_in is not None
    with readable(nnet_in) as source:
        return nnet3_descriptors.read_nnet(source)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
