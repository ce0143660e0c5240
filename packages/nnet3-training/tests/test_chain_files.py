"""FSTs, supervisions and examples of 'chain' models: written, read, and damaged."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import attrs
import numpy as np
import pytest
from chain_cases import denominator, end_to_end, paths, supervision
from nnet3_training import (
    ChainSupervision,
    ExampleInput,
    ExampleOutput,
    Fst,
    TrainingExample,
    merge_examples,
    read_chain_examples,
    read_chain_supervision,
    read_fst,
    write_chain_examples,
    write_chain_supervision,
    write_fst,
)
from nnet3_training.chain.examples import example_bytes
from nnet3_training.chain.fsts.files import compact_bytes, properties, vector_bytes

RNG = np.random.default_rng(0)


def transducer() -> Fst:
    """Two states, and an arc that reads one label and writes another."""
    return Fst.from_arcs(
        start=1,
        final_costs=[0.5, np.inf],
        sources=[1],
        labels=[2],
        output_labels=[3],
        costs=[0.25],
        destinations=[0],
    )


def example(known: ChainSupervision, key: str = "a") -> TrainingExample:
    """Inputs at every frame, outputs at every third."""
    frames, sequences = known.frames_per_sequence, known.num_sequences
    grid = [(n, 3 * t, 0) for t in range(frames) for n in range(sequences)]
    inputs = [RNG.standard_normal((3 * frames, 2)) for _ in range(sequences)]
    return TrainingExample(
        key=key,
        inputs=[ExampleInput.from_sequences("input", inputs, t_start=-130)],
        outputs=[ExampleOutput(name="output", indexes=np.array(grid, np.int32), supervision=known)],
    )


@pytest.mark.parametrize("fst", [Fst.empty(), transducer(), denominator(RNG)])
def test_fst_files(fst: Fst, tmp_path: Path) -> None:
    """An FST is read as it was written."""
    write_fst(fst, tmp_path / "fst")

    assert read_fst(tmp_path / "fst").equals(fst)


def test_compact_acceptors(tmp_path: Path) -> None:
    """A compact acceptor is read as it was written."""
    for fst in (denominator(RNG), paths(RNG, frames=4, pdfs=3)):
        (tmp_path / "fst").write_bytes(compact_bytes(fst))
        assert read_fst(tmp_path / "fst").equals(fst)


def test_properties() -> None:
    """The header states properties of an FST in OpenFst's bits."""
    acceptor, no_epsilons, top_sorted, acyclic, accessible = (
        1 << 16,
        1 << 23,
        1 << 38,
        1 << 35,
        1 << 40,
    )

    chain = properties(paths(RNG, frames=3, pdfs=2, width=1))
    loops = properties(denominator(RNG))

    for bit in (acceptor, no_epsilons, top_sorted, acyclic, accessible):
        assert chain & bit
    assert chain & (1 << 44)  # one path
    assert not loops & (top_sorted | acyclic)
    assert properties(transducer()) & (acceptor << 1)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("make", [supervision, end_to_end])
def test_supervision_files(make, binary: bool, tmp_path: Path) -> None:
    """A supervision is read as it was written; numbers in text have seven digits."""
    known = attrs.evolve(make(RNG), alignment_pdfs=range(12))
    write_chain_supervision(known, tmp_path / "sup", binary=binary)

    found = read_chain_supervision(tmp_path / "sup")

    for field in ("weight", "num_sequences", "frames_per_sequence", "label_dim", "alignment_pdfs"):
        assert getattr(found, field) == getattr(known, field)
    for one, other in zip(found.fsts, known.fsts, strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.destinations, other.destinations)
        np.testing.assert_allclose(one.costs, other.costs, rtol=0 if binary else 1e-6)
        np.testing.assert_allclose(one.final_costs, other.final_costs, rtol=0 if binary else 1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_example_files(binary: bool, tmp_path: Path) -> None:
    """Examples are read as written, also weights of frames and large indexes."""
    weighted = attrs.evolve(supervision(RNG), deriv_weights=np.arange(12) / 8)
    written = [example(weighted, "a"), example(end_to_end(RNG), "b")]
    write_chain_examples(written, tmp_path / "ark", binary=binary)

    found = list(read_chain_examples(tmp_path / "ark"))

    assert [each.key for each in found] == ["a", "b"]
    for one, other in zip(found, written, strict=True):
        for mine, yours in zip(one.ios, other.ios, strict=True):
            assert mine.name == yours.name
            np.testing.assert_array_equal(mine.indexes, yours.indexes)
        np.testing.assert_allclose(one.inputs[0].values, other.inputs[0].values, rtol=1e-6)
        mine, yours = one.outputs[0].supervision, other.outputs[0].supervision
        np.testing.assert_array_equal(mine.deriv_weights, yours.deriv_weights)
        assert mine.fsts[0].num_arcs == yours.fsts[0].num_arcs


def test_older_weights() -> None:
    """Weights of frames are read as bytes, or if there are none."""
    each = example(attrs.evolve(paths_supervision(), deriv_weights=np.ones(4)))
    data = example_bytes(each)
    at, end = data.index(b"<DW2> "), data.index(b"</NnetChainSup>")
    as_bytes = b"<DW> \x01" + struct.pack("<i", 4) + bytes([255, 0, 51, 255])
    for weights, expected in ((as_bytes, [1.0, 0.0, 0.2, 1.0]), (b"", [])):
        stream = io.BytesIO(b"a " + data[:at] + weights + data[end:])
        (found,) = read_chain_examples(stream)
        np.testing.assert_allclose(found.outputs[0].supervision.deriv_weights, expected)


def paths_supervision() -> ChainSupervision:
    """One sequence of four frames."""
    fst = paths(RNG, frames=4, pdfs=5)
    return ChainSupervision(frames_per_sequence=4, label_dim=5, fst=fst)


def test_merged_examples() -> None:
    """Output rows are ordered by frame, and so are the weights of frames."""
    parts = [
        example(attrs.evolve(paths_supervision(), deriv_weights=np.full(4, number)))
        for number in range(3)
    ]

    merged = merge_examples(parts)

    (output,) = merged.outputs
    assert output.indexes[:4].tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 3, 0]]
    assert output.supervision.num_sequences == 3
    assert output.supervision.deriv_weights[:4].tolist() == [0, 1, 2, 0]
    assert merged.inputs[0].indexes[:, 0].tolist() == [0] * 12 + [1] * 12 + [2] * 12


VECTOR = vector_bytes(paths(RNG, frames=2, pdfs=3))
COMPACT = compact_bytes(paths(RNG, frames=2, pdfs=3))
