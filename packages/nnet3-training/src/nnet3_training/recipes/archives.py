"""The objectives of runs, and the archives of the examples that they need.

All else of a run is the same for every objective. An objective makes examples of utterances, writes
and reads them, and gives the function that a `Trainer` maximises. Archives are made once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.files import Reader, new_folder
from nnet3_graph import compute_context

from nnet3_training.chain.examples import NOT_COMPUTED, read_chain_example, read_chain_examples
from nnet3_training.chain.examples import example_bytes as chain_example_bytes
from nnet3_training.chain.fsts.files import read_fst
from nnet3_training.chain.graphs import Normalization, make_normalization_fst
from nnet3_training.chain.objective import ChainTraining
from nnet3_training.chain.options import ChainOptions
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.chain.utterance_examples import ChainExampleMaker
from nnet3_training.egs import changes, chunks, making
from nnet3_training.egs.examples import TrainingExample
from nnet3_training.egs.files import (
    entries_of,
    example_bytes,
    key_bytes,
    read_example,
    read_examples,
)
from nnet3_training.errors import RecipeError
from nnet3_training.merging import MinibatchRules, shape_of, size_of
from nnet3_training.objectives import ObjectiveFunction
from nnet3_training.recipes import run_folder
from nnet3_training.recipes.options import RecipeOptions

TrainingData = making.Utterance | TrainingExample
"""The data of a run: utterances, or finished examples."""

_LOGGER = logging.getLogger(__name__)
_ANY_XENT = 0.1


@attrs.frozen(kw_only=True)
class RunObjective:
    """The objective as a part of a run; a value that can be sent to a process.

    It is that of the output nodes, for classes of frames or for target values; or LF-MMI.

    Attributes:
        compress: Whether to compress features, and dense targets, that are not compressed yet.
        chain: The options of LF-MMI; None for the objectives that the output nodes name.
        den_fst: The file of the denominator of LF-MMI.
    """

    compress: bool
    chain: ChainOptions | None = None
    den_fst: Path = Path()

    def examples(
        self, nnet: Nnet, splitter: chunks.UtteranceSplitter, rng: np.random.Generator
    ) -> Callable[[TrainingData], list[TrainingExample]]:
        """The function that makes the examples of an utterance: none if it is too short.

        For LF-MMI, parts of supervisions get the weights of the normalization FST, which follows
        from the denominator; parts without a path in it are left out.

        Raises:
            RecipeError: (the result) an argument is of another kind.
            ExampleError: (the result) an argument is not valid.
        """
        maker = None
        if self.chain is not None:
            fst = make_normalization_fst(read_fst(self.den_fst), nnet.node_dim("output"))
            maker = ChainExampleMaker(splitter=splitter, normalization=Normalization(fst), rng=rng)

        def made(data: object) -> list[TrainingExample]:
            found: Sequence[TrainingExample | None]
            if isinstance(data, TrainingExample):
                found = [data]
            elif not isinstance(data, making.Utterance):
                kind = type(data).__name__
                raise RecipeError(
                    f"expected an Utterance or a TrainingExample to train on, found a {kind}"
                )
            elif maker is None:
                found = making.make_examples(data, splitter, rng)
            else:
                found = maker.examples(data)
            examples = [example for example in found if example is not None]
            return [changes.with_compression(each) if self.compress else each for each in examples]

        return made

    def to_bytes(self, example: TrainingExample) -> bytes:
        """An example as it stands in an archive, behind its key."""
        return example_bytes(example) if self.chain is None else chain_example_bytes(example)

    def decode(self, reader: Reader) -> TrainingExample:
        """Reads one example."""
        return read_example(reader) if self.chain is None else read_chain_example(reader)

    def read(self, path: Path, nnet: Nnet) -> Iterator[TrainingExample]:
        """The examples of an archive."""
        return read_examples(path, nnet) if self.chain is None else read_chain_examples(path)

    def function(self, nnet: Nnet, *, is_for_stats: bool = False) -> ObjectiveFunction | None:
        """The objective to maximise; None for the objectives that the output nodes name.

        Args:
            nnet: The network.
            is_for_stats: Whether it uses the cross-entropy output, if there is one, in any case, so
                that all components have statistics.
        """
        if self.chain is None:
            return None
        options = self.chain
        has_xent = any(node.name == "output-xent" for node in nnet.output_nodes)
        if is_for_stats and has_xent and not options.xent_regularize:
            options = attrs.evolve(options, xent_regularize=_ANY_XENT)
        return ChainTraining(nnet, self.den_fst, options)


def objective_of(folder: Path, options: RecipeOptions) -> RunObjective:
    """The objective of the run in a folder."""
    return RunObjective(
        compress=options.compress, chain=options.chain, den_fst=folder / run_folder.DEN_FST
    )


def utterance_name(example: TrainingExample) -> str:
    """The name of the utterance that an example comes from: the key without its place.

    The place is the first frame, "-4", or with nnet3-chain-get-egs --long-key the first frame, left
    context, length, right context and "v1".
    """
    key = example.key
    return key.rsplit("-", 5 if key.endswith("-v1") else 1)[0]


DIAGNOSTIC = TRAIN, HELD_OUT = "train", "held_out"
"""The kinds of examples that networks are evaluated on."""

_OPEN_FILES = 200
"""Number of archives written at a time; with more, the examples are read several times."""


def archive_path(folder: Path, number: int) -> Path:
    """The path of archive `number`, from 0."""
    return folder / f"train.{number}.ark"


def diagnostic_path(folder: Path, kind: str) -> Path:
    """The path of the archive of one of the kinds of examples that networks are evaluated on."""
    return folder / f"diagnostic.{kind}.ark"


def make_archives(
    utterances: Iterable[TrainingData],
    nnet: Nnet,
    objective: RunObjective,
    options: RecipeOptions,
    folder: Path,
) -> None:
    """Makes examples from utterances and deals them out to archives, in bounded memory.

    (Of examples that are made already it remembers the names of their utterances.)

    Args:
        utterances: Taken one at a time.
        nnet: Says how much context an example needs.
        objective: Makes the examples.
        options: Of the run.
        folder: The folder to write; it exists only when all archives are complete.

    Raises:
        RecipeError: there are too few utterances, or none is long enough; or they have other
            dimensions than the network's.
        ExampleError: an utterance does not make sense, or is not of the kind that the objective
            needs.
        FileError: a file of utterances cannot be read.
        OSError: the examples cannot be written.
    """
    try:
        with new_folder(folder) as unfinished:
            _write_archives(utterances, nnet, objective, options, Path(unfinished))
    except OSError as error:
        if folder.exists():
            raise RecipeError(f"'{folder}' was made meanwhile, by another process") from error
        raise


def _write_archives(
    utterances: Iterable[TrainingData],
    nnet: Nnet,
    objective: RunObjective,
    options: RecipeOptions,
    unfinished: Path,
) -> None:
    left, right = compute_context(nnet)
    step = options.frame_subsampling_factor
    split = chunks.SplitOptions(
        num_frames=options.frames_per_example,
        left_context=left + step // 2,  # inputs are moved by so much to either side
        right_context=right + step // 2,
        frame_subsampling_factor=step,
    )
    rng = np.random.default_rng(options.seed)
    examples_of = objective.examples(nnet, chunks.UtteranceSplitter(split, rng), rng)
    dims = {node.name: nnet.node_dim(node.name) for node in nnet.input_nodes}
    dims |= {node.name: nnet.node_dim(node.name) for node in nnet.output_nodes}
    names: dict[str, int] = {}
    samples: dict[str, list[bytes]] = {kind: [] for kind in DIAGNOSTIC}
    seen = Counter[str]()
    frames = utterance_count = too_short = 0
    everything = unfinished / "all.ark"
    with everything.open("wb") as file:
        for utterance in utterances:
            number = utterance_count + 1
            if isinstance(utterance, TrainingExample):
                number = names.setdefault(utterance_name(utterance), len(names) + 1)
            utterance_count = max(utterance_count, number)
            made = examples_of(utterance)
            too_short += not made
            for example in made:
                _check(example, dims)
                entry = key_bytes(example.key) + objective.to_bytes(example)
                kind = TRAIN if number % options.held_out_every else HELD_OUT
                seen[kind] += 1
                _add_to_sample(samples[kind], entry, seen[kind], options.diagnostic_examples, rng)
                if kind == TRAIN:
                    file.write(entry)
                    frames += _frames(example)
    if not all(samples.values()):
        raise RecipeError(
            f"expected at least {options.held_out_every} utterances, because one of every "
            f"{options.held_out_every} is held out; found {utterance_count}, and {too_short} of "
            "them are too short for an example"
        )
    count = max(
        options.num_jobs_initial, options.num_jobs_final, round(frames / options.frames_per_archive)
    )
    sizes = _deal(everything, unfinished, count, objective, options.minibatch_size, rng)
    everything.unlink()
    for kind, entries in samples.items():
        diagnostic_path(unfinished, kind).write_bytes(b"".join(entries))
    record = run_folder.ArchivesRecord(
        frames=tuple(int(n) for n in sizes[:, 0]),
        examples=tuple(int(n) for n in sizes[:, 1]),
        train_examples=len(samples[TRAIN]),
        held_out_examples=len(samples[HELD_OUT]),
        utterances=utterance_count,
        too_short=too_short,
    )
    run_folder.write_record(record, unfinished / "archives.json")


def _add_to_sample(
    sample: list[bytes], entry: bytes, number: int, size: int, rng: np.random.Generator
) -> None:
    """Adds entry `number`, from 1, to a uniform random sample of so many of all entries.

    Source: Vitter, "Random sampling with a reservoir", 1985, algorithm R.
    """
    if len(sample) < size:
        sample.append(entry)
    elif (place := int(rng.integers(number))) < size:
        sample[place] = entry


def _check(example: TrainingExample, dims: Mapping[str, int]) -> None:
    """Raises a RecipeError if an example is not one sequence with the columns of the network."""
    if not example.outputs or example.num_sequences != 1:
        raise RecipeError(
            f"example '{example.key}': expected outputs of one sequence, found "
            f"{len(example.outputs)} outputs of {example.num_sequences} sequences"
        )
    for io in example.ios:
        known = getattr(io, "supervision", None)
        found = known.label_dim if isinstance(known, ChainSupervision) else io.matrix.shape[1]
        if io.name not in dims and not io.name.startswith(NOT_COMPUTED):
            raise RecipeError(
                f"example '{example.key}': the network has no input or output '{io.name}'"
            )
        if dims.get(io.name, found) != found:
            raise RecipeError(
                f"example '{example.key}': expected {dims[io.name]} columns of '{io.name}', as the "
                f"network has, found {found}"
            )


def _frames(example: TrainingExample) -> int:
    return max(len(io.indexes) for io in example.outputs)


def _deal(
    source: Path,
    folder: Path,
    count: int,
    objective: RunObjective,
    minibatch_size: str,
    rng: np.random.Generator,
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Deals examples out in rounds; each round gives one to every archive, in random order.

    Returns:
        (archives, 2), the numbers of frames and examples of each archive.
    """
    sizes = np.zeros((count, 2), dtype=np.int64)
    shapes = [Counter[tuple[int, int]]() for _ in range(count)]
    state = rng.bit_generator.state
    for first in range(0, count, _OPEN_FILES):
        numbers = range(first, min(first + _OPEN_FILES, count))
        rng.bit_generator.state = state  # each pass deals in the same way
        with ExitStack() as stack:
            files = {
                number: stack.enter_context(archive_path(folder, number).open("wb"))
                for number in numbers
            }
            entries = entries_of(source, objective.decode)
            for number, entry in zip(_turns(count, rng), entries, strict=False):
                if number in files:
                    files[number].write(f"{entry.key} ".encode() + entry.data)
                    sizes[number] += _frames(entry.value), 1
                    shapes[number][size_of(entry.value), hash(shape_of(entry.value))] += 1
    if not sizes[:, 1].all():
        raise RecipeError(
            f"expected at least {count} examples, one for the archive of each job; found "
            f"{sizes[:, 1].sum()}"
        )
    rules, discarded = MinibatchRules.parse(minibatch_size), 0
    for number, found in enumerate(shapes):
        left = sum(rules.num_discarded(size, each) for (size, _), each in found.items())
        if left == found.total():
            raise RecipeError(
                f"minibatch_size '{minibatch_size}': no minibatch can be made of the {left} "
                f"examples of archive {number}, which have {len(found)} shapes; a range has "
                f"smaller ones, as '1:64'"
            )
        discarded += left
    if discarded:
        _LOGGER.warning(
            "minibatch_size '%s': %d of %d examples are in no minibatch; a range has smaller ones, "
            "as '1:64'", minibatch_size, discarded, sizes[:, 1].sum(),
        )  # fmt: skip
    return sizes


def _turns(count: int, rng: np.random.Generator) -> Iterator[int]:
    """Yields the archive of each example in turn."""
    while True:
        yield from rng.permutation(count).tolist()
