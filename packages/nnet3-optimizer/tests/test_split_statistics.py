"""Statistics are extracted for each window that is pooled, if nothing else reads them."""

import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, IoSpecification, NnetComputation
from nnet3_computation.commands import Propagate
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import check_computation, verify_equivalent
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.convert_addition import convert_addition
from nnet3_optimizer.passes.renumber import renumber
from nnet3_optimizer.passes.split_statistics import split_statistics
from small_networks import stacked

CONFIG = stacked(
    4,
    "extract StatisticsExtraction input-dim=4",
    "pool StatisticsPooling input-dim=9 left-context=1 right-context=2",
)


def compiled(
    config: str = CONFIG, *, sequences: int = 2, outputs: int = 1, train: bool = True
) -> tuple[Nnet, Draft]:
    """A network, and its draft when the pass runs."""
    nnet = parse_config(config)
    request = ComputationRequest(
        inputs=(IoSpecification.from_range("input", 0, 4, sequences, has_deriv=train),),
        outputs=tuple(
            IoSpecification.from_range(node.name, 0, outputs, sequences, has_deriv=train)
            for node in nnet.output_nodes
        ),
    )
    return nnet, convert_addition(Draft.of(nnet, compile_computation(nnet, request)))


def split(nnet: Nnet, draft: Draft) -> NnetComputation:
    """The result of the pass, checked and proven."""
    after = renumber(split_statistics(draft)).computation()
    check_computation(nnet, after)
    verify_equivalent(nnet, draft.computation(), after)
    return after


def windows(nnet: Nnet, computation: NnetComputation) -> list[list[list[int]]]:
    """The ranges of rows of each extraction and pooling of the forward part."""
    commands = [each for each in computation.commands if isinstance(each, Propagate)]
    indexes = [computation.precomputed_indexes[each.precomputed_indexes] for each in commands]
    return [each.forward_indexes.tolist() for each in indexes]


@pytest.mark.parametrize("train", [False, True])
def test_a_row_for_each_window(train: bool) -> None:
    """The extraction sums up windows; the derivatives of a window's frames are of its row."""
    nnet, draft = compiled(train=train)

    after = split(nnet, draft)

    assert windows(nnet, draft.computation())[1] == [[0, 3], [3, 6]]
    assert windows(nnet, after) == [[[0, 3], [3, 6]], [[0, 1], [1, 2]]]
    rows = [rows for rows, columns in after.matrices.tolist() if columns == 9]
    assert rows == [2, 2] * (1 + train)
    extraction, pooling = after.precomputed_indexes[1:]
    assert extraction.backward_indexes.tolist() == ([0, 0, 0, 1, 1, 1] if train else [])
    assert pooling.backward_indexes.tolist() == ([[0, 1], [1, 2]] if train else [])


@pytest.mark.parametrize(
    ("outputs", "more"),
    [
        (2, ""),
        (1, "output-node name=other input=extract"),
        (
            1,
            "component name=second type=StatisticsPoolingComponent input-dim=9 left-context=0 "
            "right-context=2\ncomponent-node name=second component=second input=extract\n"
            "output-node name=other input=second",
        ),
    ],
    ids=["windows overlap", "the user wants them", "two poolings"],
)
def test_statistics_of_use_elsewhere_stay(outputs: int, more: str) -> None:
    """Statistics that several windows hold, or that anything else reads, stay as they are."""
    _, draft = compiled(CONFIG + more, outputs=outputs)

    assert split_statistics(draft) is draft
