"""The objectives of runs, and the examples that they need.

All else of a run is the same for every objective. An objective makes examples of utterances, writes
and reads them, and gives the function that a `Trainer` maximises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import attrs
import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.files import Reader

from nnet3_training.chain.example_files import example_bytes as chain_example_bytes
from nnet3_training.chain.example_files import read_chain_example, read_chain_examples
from nnet3_training.chain.fsts.files import read_fst
from nnet3_training.chain.graphs import Normalization, make_normalization_fst
from nnet3_training.chain.options import ChainOptions
from nnet3_training.chain.training import ChainTraining
from nnet3_training.chain.utterance_examples import ChainExampleMaker, ChainUtterance
from nnet3_training.egs.changes import with_compression
from nnet3_training.egs.chunks import UtteranceSplitter
from nnet3_training.egs.files import example_bytes, read_example, read_examples
from nnet3_training.egs.making import Utterance, make_examples
from nnet3_training.errors import RecipeError
from nnet3_training.examples import TrainingExample
from nnet3_training.objectives import ObjectiveFunction

TrainingData = Utterance | ChainUtterance | TrainingExample
"""The data of a run: utterances, or finished examples."""

_ANY_XENT = 0.1


class RunObjective(Protocol):
    """An objective as a part of a run; a value that can be sent to a process."""

    def examples(
        self, nnet: Nnet, splitter: UtteranceSplitter, rng: np.random.Generator
    ) -> Callable[[TrainingData], list[TrainingExample]]:
        """The function that makes the examples of an utterance: none if it is too short.

        Raises:
            RecipeError: (the result) an argument is of another kind.
            ExampleError: (the result) an argument is not valid.
        """
        ...

    def to_bytes(self, example: TrainingExample) -> bytes:
        """An example as it stands in an archive, behind its key."""
        ...

    def decode(self, reader: Reader) -> TrainingExample:
        """Reads one example."""
        ...

    def read(self, path: Path, nnet: Nnet) -> Iterator[TrainingExample]:
        """The examples of an archive."""
        ...

    def function(self, nnet: Nnet) -> ObjectiveFunction | None:
        """The objective to maximise; None for the objectives that the output nodes name."""
        ...

    def stats_function(self, nnet: Nnet) -> ObjectiveFunction | None:
        """The objective for statistics: it uses all outputs, so that all components have some."""
        ...


@attrs.frozen
class FrameObjective:
    """The objectives that the output nodes name: for classes of frames, or for target values.

    Attributes:
        compress: Whether to compress features, and targets, that are not compressed yet.
    """

    compress: bool

    def examples(
        self, nnet: Nnet, splitter: UtteranceSplitter, rng: np.random.Generator
    ) -> Callable[[TrainingData], list[TrainingExample]]:
        """See `RunObjective.examples`."""

        def made(data: TrainingData) -> list[TrainingExample]:
            if isinstance(data, TrainingExample):
                return [with_compression(data) if self.compress else data]
            if not isinstance(data, Utterance):
                raise _other_kind(data, "an Utterance")
            return make_examples(data, splitter, rng, compress=self.compress)

        return made

    def to_bytes(self, example: TrainingExample) -> bytes:
        """See `RunObjective.to_bytes`."""
        return example_bytes(example)

    def decode(self, reader: Reader) -> TrainingExample:
        """See `RunObjective.decode`."""
        return read_example(reader)

    def read(self, path: Path, nnet: Nnet) -> Iterator[TrainingExample]:
        """See `RunObjective.read`."""
        return read_examples(path, nnet)

    def function(self, nnet: Nnet) -> None:
        """See `RunObjective.function`."""

    def stats_function(self, nnet: Nnet) -> None:
        """See `RunObjective.stats_function`."""


@attrs.frozen
class ChainRunObjective:
    """LF-MMI.

    Attributes:
        den_fst: The file of the denominator.
        options: The options of the objective.
        compress: Whether to compress features that are not compressed yet.
    """

    den_fst: Path
    options: ChainOptions
    compress: bool

    def examples(
        self, nnet: Nnet, splitter: UtteranceSplitter, rng: np.random.Generator
    ) -> Callable[[TrainingData], list[TrainingExample]]:
        """See `RunObjective.examples`.

        Parts of supervisions get the weights of the normalization FST, which follows from the
        denominator; parts without a path in it are left out.
        """
        normalization = make_normalization_fst(read_fst(self.den_fst), nnet.node_dim("output"))
        maker = ChainExampleMaker(
            splitter=splitter, normalization=Normalization(normalization), rng=rng
        )

        def made(data: TrainingData) -> list[TrainingExample]:
            if isinstance(data, TrainingExample):
                found: list[TrainingExample | None] = [data]
            elif isinstance(data, ChainUtterance):
                found = maker.examples(data)
            else:
                raise _other_kind(data, "a ChainUtterance")
            examples = [example for example in found if example is not None]
            return [with_compression(each) if self.compress else each for each in examples]

        return made

    def to_bytes(self, example: TrainingExample) -> bytes:
        """See `RunObjective.to_bytes`."""
        return chain_example_bytes(example)

    def decode(self, reader: Reader) -> TrainingExample:
        """See `RunObjective.decode`."""
        return read_chain_example(reader)

    def read(self, path: Path, nnet: Nnet) -> Iterator[TrainingExample]:
        """See `RunObjective.read`."""
        return read_chain_examples(path)

    def function(self, nnet: Nnet) -> ChainTraining:
        """See `RunObjective.function`."""
        return ChainTraining(nnet, self.den_fst, self.options)

    def stats_function(self, nnet: Nnet) -> ChainTraining:
        """See `RunObjective.stats_function`: with the cross-entropy output, if there is one."""
        has_xent = any(node.name == "output-xent" for node in nnet.output_nodes)
        weight = self.options.xent_regularize or (_ANY_XENT if has_xent else 0.0)
        options = attrs.evolve(self.options, xent_regularize=weight)
        return ChainTraining(nnet, self.den_fst, options)


def _other_kind(data: object, expected: str) -> RecipeError:
    return RecipeError(
        f"expected {expected} or a TrainingExample to train on, found a {type(data).__name__}"
    )


def utterance_name(example: TrainingExample) -> str:
    """The name of the utterance that an example comes from: the key without its place.

    The place is the first frame, "-4", or with nnet3-chain-get-egs --long-key the first frame, left
    context, length, right context and "v1".
    """
    key = example.key
    return key.rsplit("-", 5 if key.endswith("-v1") else 1)[0]
