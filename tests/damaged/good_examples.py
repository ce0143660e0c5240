"""Good archives of training examples, binary and text: of all forms, of nnet3 and of 'chain'."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from chain_cases import end_to_end, supervision
from nnet3_descriptors import parse_config
from nnet3_descriptors.files import compressed
from nnet3_training import (
    ChainSupervision,
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    TrainingExample,
    chain,
    egs,
    merge_examples,
    read_chain_examples,
    read_examples,
)
from nnet3_training.chain import example_bytes as chain_example_bytes
from nnet3_training.egs import example_bytes
from nnet3_training.objectives import as_objective_function

from damaged.good_files import GoodFile, good_file

EXAMPLES, CHAIN_EXAMPLES = "examples", "chain examples"
"""The kinds of archives."""

_FUNCTIONS = {
    "nnet3_training.egs.files.read_indexes": "integers",
    "nnet3_training.egs.files.read_stored_matrix": "matrix",
}
"""What else takes an element from a reader, beside the reader's own methods."""


def read_examples_of(data: bytes, kind: str) -> list[TrainingExample]:
    """Reads an archive of either kind."""
    read = read_examples if kind == EXAMPLES else read_chain_examples
    return list(read(io.BytesIO(data)))


def bytes_of(examples: Sequence[TrainingExample], kind: str, *, binary: bool = True) -> bytes:
    """Examples as an archive."""
    function = example_bytes if kind == EXAMPLES else chain_example_bytes
    return b"".join(f"{each.key} ".encode() + function(each, binary=binary) for each in examples)


def changes_of(example: TrainingExample, kind: str) -> list[Callable[[], object]]:
    """The operations of tools and trainers on an example, as calls."""
    own = egs if kind == EXAMPLES else chain
    calls: list[Callable[[], object]] = [
        lambda: merge_examples([example, example]),
        lambda: egs.shifted(example, 1, step=1 if kind == EXAMPLES else None),
        lambda: own.with_context(example, left=1, right=1),
        lambda: own.with_weight(example, 0.5),
        lambda: egs.with_compression(example),
        lambda: [each.values for each in example.inputs],
        example.request,
    ]
    if kind == EXAMPLES:
        calls += [
            lambda: egs.with_frame(example, 0),
            lambda: as_objective_function(None, _NETWORK)(_outputs(example), example),
        ]
    return calls


_NETWORK = parse_config(
    "input-node name=input dim=6\n"
    "output-node name=output input=input objective=linear\n"
    "output-node name=output-2 input=input objective=quadratic\n"
)


def _outputs(example: TrainingExample) -> dict[str, np.ndarray]:
    """What a network might give at the outputs of an example."""
    dims = {"output": 5, "output-2": 2}
    return {
        io.name: np.ones((len(io.indexes), dims.get(io.name, 1)), dtype=np.float32)
        for io in example.outputs
    }


@functools.cache
def example_files() -> tuple[GoodFile, ...]:
    """Small archives, binary and text, of one or two examples."""
    groups = [(EXAMPLES, nnet3_examples()), (CHAIN_EXAMPLES, _chain_examples())]
    return tuple(
        good_file(
            f"{kind} {name}",
            bytes_of(examples, kind, binary=binary),
            kind,
            read_examples_of,
            group="examples",
            functions=_FUNCTIONS,
        )
        for kind, named in groups
        for name, examples in named.items()
        for binary in (True, False)
    )


def nnet3_examples() -> dict[str, list[TrainingExample]]:
    """Examples of nnet3, by what is special about them."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((12, 6), dtype=np.float32)
    labels = ExampleOutput.from_labels("output", [[0, 2, 1, 0]], 5)
    targets = ExampleOutput.from_targets("output-2", [features[:4, :2]])
    full = [ExampleInput.from_sequences("input", [features], t_start=-4)]
    ivector = ExampleInput.from_sequences("ivector", [features[:1]])
    plain = TrainingExample(key="a", inputs=full, outputs=[labels])
    both = TrainingExample(key="b", inputs=[*full, ivector], outputs=[labels, targets])
    stored = DenseTargets(values=compressed.compress(features[:4]))
    dense = ExampleOutput(name="output", indexes=targets.indexes, supervision=stored)
    of_columns = compressed.compress(features)
    in_bytes = attrs.evolve(of_columns, token="CM3", body=bytes(range(features.size)))
    return {
        "full": [plain, both],
        "merged": [attrs.evolve(merge_examples([plain, plain]), key="m")],
        **{
            f"compressed {matrix.token}": [
                TrainingExample(
                    key="c", inputs=[attrs.evolve(full[0], values=matrix)], outputs=[dense]
                )
            ]
            for matrix in (of_columns, in_bytes)
        },
    }


def _chain_examples() -> dict[str, list[TrainingExample]]:
    def example(known: ChainSupervision) -> TrainingExample:
        frames = known.frames_per_sequence
        grid = [(n, 3 * t, 0) for t in range(frames) for n in range(known.num_sequences)]
        inputs = [np.ones((3 * frames, 2), dtype=np.float32) for _ in range(known.num_sequences)]
        indexes = np.array(grid, np.int32)
        return TrainingExample(
            key="a",
            inputs=[ExampleInput.from_sequences("input", inputs)],
            outputs=[ExampleOutput(name="output", indexes=indexes, supervision=known)],
        )

    rng = np.random.default_rng(0)
    return {
        "of paths": [example(supervision(rng, sequences=1))],
        "end to end": [example(end_to_end(rng, sequences=2))],
    }
