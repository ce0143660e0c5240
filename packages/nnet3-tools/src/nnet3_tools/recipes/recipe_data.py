"""The training data of nnet3-train-recipe, from its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_tables
import nnet3_training

from nnet3_tools.egs.splitting import ExampleMaker, posteriors_of
from nnet3_tools.kaldi_command import one_line, warn

if TYPE_CHECKING:
    from nnet3_training import SparsePosteriors
    from nnet3_training.chain import ChainUtterance
    from nnet3_training.recipes import TrainingData

    from nnet3_tools.egs.splitting import Known

_LABELS = ("alignments", "posteriors", "targets", "supervisions")


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for the data."""
    options = (
        click.option("--features", metavar="RSPECIFIER", help="Features of the utterances."),
        click.option(
            "--alignments", metavar="RSPECIFIER", help="The class of each frame, a number."
        ),
        click.option(
            "--posteriors",
            metavar="RSPECIFIER",
            help="Classes with weights of each frame, instead of --alignments.",
        ),
        click.option(
            "--targets", metavar="RSPECIFIER", help="Numbers to be reached, a row for each frame."
        ),
        click.option(
            "--supervisions",
            metavar="RSPECIFIER",
            help="Supervisions of a chain model, as chain-get-supervision writes them.",
        ),
        click.option(
            "--egs", metavar="RSPECIFIER", help="Examples, instead of features and labels."
        ),
        click.option(
            "--online-ivectors", default="", metavar="RSPECIFIER", help="I-vectors, if any."
        ),
        click.option("--online-ivector-period", default=10, help="Frames for each i-vector."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@attrs.frozen(kw_only=True)
class DataOptions:
    """The options for the data, and checks of the labels.

    Attributes:
        tool: Name of the tool, for warnings.
        features: Table of features.
        alignments: Table of classes.
        posteriors: Table of classes with weights.
        targets: Table of target values.
        supervisions: Table of supervisions of a chain model.
        egs: Table of examples.
        online_ivectors: Table of i-vectors; empty for none.
        online_ivector_period: Frames for each i-vector.
    """

    tool: str
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

    def read(self, dim: int, step: int, *, is_chain: bool) -> Iterator[TrainingData]:
        """The data; warns of utterances that lack labels or i-vectors.

        Args:
            dim: Columns of the output.
            step: Frames of the input for each frame of the output.
            is_chain: Whether the network is a chain model.

        Raises:
            TableError, ModelFileError: A table cannot be read.
            click.ClickException: Targets have another number of columns than the output.
        """
        from nnet3_training.chain import read_chain_example
        from nnet3_training.egs import read_example

        if self.egs:
            decode = read_chain_example if is_chain else read_example
            for entry in nnet3_tables.read_objects(self.egs, decode):
                yield attrs.evolve(entry.value, key=entry.key)
            return
        assert self.features is not None
        options = {
            "online_ivectors": self.online_ivectors,
            "online_ivector_period": self.online_ivector_period,
            "length_tolerance": 100,
            "targets_length_tolerance": 2,
            "frame_subsampling_factor": step,
        }
        if is_chain:
            yield from self._chain_utterances(options)
            return
        maker = ExampleMaker(
            tool=self.tool,
            what="label",
            supervision=self._labels(dim),
            options=options,
            takes_input_rows=True,
        )
        yield from maker.utterances(self.features)

    def _chain_utterances(self, options: dict[str, Any]) -> Iterator[ChainUtterance]:
        from nnet3_training.egs import read_stored_matrix

        from nnet3_tools.chain.making.tables import ChainTables

        assert self.features is not None
        assert self.supervisions is not None
        tables = ChainTables.opened(self.supervisions, "", options)
        for entry in nnet3_tables.read_objects(self.features, read_stored_matrix):
            try:
                yield tables.utterance(entry.key, entry.value)
            except nnet3_training.ExampleError as error:
                warn(self.tool, one_line(error))

    def _labels(self, dim: int) -> Callable[[str], Known | None]:
        """A function from the key of an utterance to the labels of its frames."""
        from nnet3_training.egs import read_alignment, read_posterior, read_stored_matrix

        if self.alignments is not None:
            alignments = self.alignments
            classes = nnet3_tables.ObjectLookup(alignments, read_alignment)

            def of_alignment(key: str) -> SparsePosteriors | None:
                found = classes.take(key)
                if found is None:
                    return None
                frames = [[(int(number), 1.0)] for number in found]
                return posteriors_of(key, frames, dim, alignments)

            return of_alignment
        if self.posteriors is not None:
            posteriors = self.posteriors
            weighted = nnet3_tables.ObjectLookup(posteriors, read_posterior)

            def of_posterior(key: str) -> SparsePosteriors | None:
                frames = weighted.take(key)
                return posteriors_of(key, frames, dim, posteriors) if frames else None

            return of_posterior
        assert self.targets is not None
        matrices = nnet3_tables.ObjectLookup(self.targets, read_stored_matrix)

        def of_targets(key: str) -> Known | None:
            matrix = matrices.take(key)
            if matrix is None:
                return None
            if matrix.shape[1] != dim:
                raise click.ClickException(
                    f"--targets: expected {dim} columns, as the output has, found "
                    f"{matrix.shape[1]} for '{key}'"
                )
            return (
                matrix
                if isinstance(matrix, nnet3_training.SparsePosteriors)
                else nnet3_training.DenseTargets(values=matrix)
            )

        return of_targets
