"""Statistics are extracted and pooled sequence by sequence if nothing else reads them."""

import re

import pytest
from nnet3_compiler import compile_computation
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    format_computation,
)
from nnet3_descriptors import Nnet, parse_config
from nnet3_optimizer import check_computation, verify_equivalent
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.convert_addition import convert_addition
from nnet3_optimizer.passes.renumber import renumber
from nnet3_optimizer.passes.split_statistics import split_statistics

CONFIG = """
input-node name=input dim=4
component name=extract type=StatisticsExtractionComponent input-dim=4
component name=pool type=StatisticsPoolingComponent input-dim=9 left-context=1 right-context=2
component-node name=extract component=extract input=input
component-node name=pool component=pool input=extract
output-node name=output input=pool
"""


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
    """The draft in parts of any size, checked and proven."""
    after = renumber(split_statistics(draft, least_bytes=1)).computation()
    check_computation(nnet, after)
    verify_equivalent(nnet, draft.computation(), after)
    return after


def calls(nnet: Nnet, computation: NnetComputation) -> list[str]:
    """The commands that run components, without their numbers and matrices' aliases."""
    lines = format_computation(computation, nnet).splitlines()
    commands = [re.sub(r"^c\d+: |#\d+", "", line) for line in lines if re.match(r"c\d+: ", line)]
    return [line for line in commands if "extract." in line or "pool." in line]


def test_parts() -> None:
    """Each sequence is extracted and pooled, forward; and extracted again for the backward pass."""
    nnet, draft = compiled()

    after = split(nnet, draft)

    found = [re.sub(r"precomputed p\d+", "p", line) for line in calls(nnet, after)]
    assert found == [
        "m9 = extract.propagate(m3(0:2, :), p)",
        "m5(0:0, :) = pool.propagate(m9, p)",
        "m12 = extract.propagate(m3(3:5, :), p)",
        "m5(1:1, :) = pool.propagate(m12, p)",
        "m11 = extract.propagate(m3(0:2, :), p)",
        "m10 = pool.backprop_no_update(m6(0:0, :), input m11, p)",
        "m4(0:2, :) = extract.backprop_no_update(m10, input m3(0:2, :), p)",
        "m14 = extract.propagate(m3(3:5, :), p)",
        "m13 = pool.backprop_no_update(m6(1:1, :), input m14, p)",
        "m4(3:5, :) = extract.backprop_no_update(m13, input m3(3:5, :), p)",
    ]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(("sequences", "parts"), [(1, 1), (3, 3), (20, 8)])
def test_number_of_parts(sequences: int, parts: int, train: bool) -> None:
    """There are as many parts as sequences, but at most eight; overlapping windows stay."""
    nnet, draft = compiled(sequences=sequences, outputs=2, train=train)

    found = calls(nnet, split(nnet, draft))

    assert sum("pool.propagate" in line for line in found) == parts
    assert sum("pool.backprop" in line for line in found) == (parts if train else 0)


def test_small_statistics_stay() -> None:
    """Statistics of less than a mebibyte are not split."""
    nnet, draft = compiled()

    assert calls(nnet, split_statistics(draft).computation()) == calls(nnet, draft.computation())


@pytest.mark.parametrize(
    "more",
    [
        "output-node name=other input=extract",
        "component name=second type=StatisticsPoolingComponent input-dim=9 left-context=0 "
        "right-context=2\ncomponent-node name=second component=second input=extract\n"
        "output-node name=other input=second",
    ],
    ids=["the user wants them", "two poolings"],
)
def test_statistics_of_use_elsewhere_stay(more: str) -> None:
    """Statistics that anything else reads stay whole."""
    nnet, draft = compiled(CONFIG + more)

    assert calls(nnet, split(nnet, draft)) == calls(nnet, draft.computation())


def calls_of(nnet: Nnet, computation: NnetComputation, at: int) -> str:
    """The command at a position as text."""
    lines = format_computation(computation, nnet).splitlines()
    return next(line for line in lines if line.startswith(f"c{at}: "))
