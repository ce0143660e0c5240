"""nnet3-train-recipe: trains a network from features and labels in a folder, and resumes runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training
from nnet3_training import egs, recipes

from nnet3_tools import cli, streams
from nnet3_tools.chain.making_egs import NO_SUPERVISION, supervisions
from nnet3_tools.egs import forms, making
from nnet3_tools.recipes import runs
from nnet3_tools.training.train import CHAIN_NUMBERS, read_den_fst

_LABELS = ("alignments", "posteriors", "targets", "supervisions")


DATA_OPTIONS = (
    cli.option("--features", None, "Features of the utterances.", "RSPECIFIER"),
    cli.option("--alignments", None, "The class of each frame, a number.", "RSPECIFIER"),
    cli.option(
        "--posteriors",
        None,
        "Classes with weights of each frame, instead of --alignments.",
        "RSPECIFIER",
    ),
    cli.option("--targets", None, "Numbers to be reached, a row for each frame.", "RSPECIFIER"),
    cli.option(
        "--supervisions",
        None,
        "Supervisions of a chain model, as chain-get-supervision writes them.",
        "RSPECIFIER",
    ),
    cli.option("--egs", None, "Examples, instead of features and labels.", "RSPECIFIER"),
    cli.option("--online-ivectors", "", "I-vectors, if any.", "RSPECIFIER"),
    cli.option("--online-ivector-period", 10, "Frames for each i-vector.", least=1),
)
"""The options of `DataOptions`."""


class DataOptions(NamedTuple):
    """The options for the data, and checks of the labels.

    Attributes:
        features: Table of features.
        alignments: Table of classes.
        posteriors: Table of classes with weights.
        targets: Table of target values.
        supervisions: Table of supervisions of a chain model.
        egs: Table of examples.
        online_ivectors: Table of i-vectors; empty for none.
        online_ivector_period: Frames for each i-vector.
    """

    features: str | None
    alignments: str | None
    posteriors: str | None
    targets: str | None
    supervisions: str | None
    egs: str | None
    online_ivectors: str
    online_ivector_period: int

    @property
    def is_given(self) -> bool:
        """Whether any option gives data."""
        return bool(self.features or self.egs)

    def check(self, *, is_chain: bool) -> None:
        """Raises a click.UsageError if the options contradict each other."""
        given = [name for name in _LABELS if getattr(self, name) is not None]
        if self.egs:
            if self.features or given:
                raise click.UsageError("expected --egs or --features with labels, got both")
            return
        expected = _LABELS[3:] if is_chain else _LABELS[:3]
        if len(given) != 1 or given[0] not in expected:
            *others, last = (f"--{name}" for name in expected)
            options = f"{', '.join(others)} or {last}" if others else last
            found = " and ".join(f"--{name}" for name in given) or "none of them"
            kind = (
                "a chain model" if is_chain else "a network that is no chain model (no --den-fst)"
            )
            raise click.UsageError(f"expected {options} as the labels of {kind}, got {found}")

    def read(self, dim: int, step: int, *, is_chain: bool) -> Iterator[recipes.TrainingData]:
        """The data; warns of utterances that lack labels or i-vectors.

        Args:
            dim: Columns of the output.
            step: Frames of the input for each frame of the output.
            is_chain: Whether the network is a chain model.

        Raises:
            TableError, ModelFileError: A table cannot be read.
            click.ClickException: Targets have another number of columns than the output.
        """
        if self.egs:
            form = forms.CHAIN if is_chain else forms.NNET3
            yield from (entry.value for entry in form.entries(self.egs))
            return
        assert self.features is not None
        options = {
            "online_ivectors": self.online_ivectors,
            "online_ivector_period": self.online_ivector_period,
            "length_tolerance": 100,
            "targets_length_tolerance": 2,
            "frame_subsampling_factor": step,
        }
        missing = NO_SUPERVISION if is_chain else "No label for key"
        utterance_of = making.utterance_maker(
            self._labels(dim), missing, options, takes_input_rows=True
        )
        features = making.stored_features(self.features)
        yield from making.usable_utterances(utterance_of, features)

    def _labels(self, dim: int) -> making.Supervision:
        """A function that gives the labels of an utterance."""
        if self.supervisions is not None:
            return supervisions(self.supervisions)
        if self.alignments is not None:
            alignments = self.alignments
            classes = nnet3_tables.ObjectLookup(alignments, egs.read_alignment)

            def of_alignment(key: str, _: int) -> nnet3_training.SparsePosteriors | None:
                found = classes.take(key)
                if found is None:
                    return None
                frames = [[(int(number), 1.0)] for number in found]
                return making.posteriors_of(key, frames, dim, alignments)

            return of_alignment
        if self.posteriors is not None:
            return making.weighted_classes(self.posteriors, dim)
        assert self.targets is not None
        matrices = nnet3_tables.ObjectLookup(self.targets, egs.read_stored_matrix)

        def of_targets(key: str, _: int) -> making.Known | None:
            matrix = matrices.take(key)
            if matrix is None:
                return None
            if matrix.shape[1] != dim:
                raise click.ClickException(
                    f"--targets: expected {dim} columns, as the output has, found "
                    f"{matrix.shape[1]} for '{key}'"
                )
            return making.known_of(matrix)

        return of_targets


@cli.tool(
    "nnet3-train-recipe",
    "DIR",
    cli.option("--nnet-config", None, "Config lines of the network to train.", "FILE"),
    cli.option("--nnet nnet_in", None, "The network to train, instead of --nnet-config.", "FILE"),
    *DATA_OPTIONS,
    cli.option("--den-fst", None, "The denominator; with it the network is a chain model.", "FILE"),
    *runs.recipe_options({}),
    *runs.RUN_OPTIONS,
)
def nnet3_train_recipe(
    folder: str, nnet_config: str | None, nnet_in: str | None, den_fst: str | None, **options: Any
) -> None:
    """Train a network from scratch in the folder DIR, or continue the run there.

    A new run needs --nnet-config or --nnet, and data: --features with --alignments, --posteriors or
    --targets; for a chain model --features with --supervisions, and --den-fst; or --egs. To
    continue, give the same again, or DIR alone once the examples are made. Until the first
    iteration begins, what you give replaces what you gave before. The result is DIR/final.raw. It
    is the same to the last bit, whatever --jobs and --dask are, and however often the run was
    interrupted.
    """
    path = Path(folder)
    data = DataOptions(**{name: options.pop(name) for name in DataOptions._fields})
    around = {name: options.pop(name) for name in runs.RUN_NAMES}
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
    is_new = not has_run or (has_network and not recipes.TrainingRun.read(folder).has_begun)
    wanted = runs.wanted_options(path, _usual(den_fst, given) if is_new else None, given)
    used = wanted or recipes.TrainingRun.read(folder).options
    nnet = _network(nnet_config, nnet_in, used.seed) if has_network else None
    utterances = None
    if data.is_given:
        is_chain = used.chain is not None
        data.check(is_chain=is_chain)
        known = nnet or nnet3_descriptors.read_nnet(path / "models" / "0.raw")
        step = used.frame_subsampling_factor
        utterances = data.read(known.node_dim("output"), step, is_chain=is_chain)
    denominator = None if den_fst is None else read_den_fst(den_fst)
    runs.run_recipe(path, nnet, utterances, wanted, denominator, has_data=data.is_given, **around)


def _usual(den_fst: str | None, given: dict[str, Any]) -> recipes.RecipeOptions:
    """The defaults of a new run.

    Raises:
        click.UsageError: There are options for chain models, and no denominator.
    """
    if den_fst is not None:
        return recipes.RecipeOptions(chain=nnet3_training.ChainOptions())
    for name in CHAIN_NUMBERS:
        if name in given:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for chain models, which need --den-fst")
    return recipes.RecipeOptions()


def _network(nnet_config: str | None, nnet_in: str | None, seed: int) -> nnet3_descriptors.Nnet:
    import numpy as np

    if nnet_config:
        text = streams.read_text(nnet_config)
        with streams.understanding(nnet_config):
            return nnet3_descriptors.parse_config(text, rng=np.random.default_rng(seed))
    assert nnet_in is not None
    return streams.read_nnet(nnet_in)
