"""The tools that compute posteriors of pdfs, on Kaldi's digits system."""

from __future__ import annotations

import functools
from pathlib import Path

import attrs
import numpy as np
import pytest
from nnet3_descriptors.files import open_reader
from nnet3_tools.training.lda_stats import LdaStats
from nnet3_training import read_chain_examples
from nnet3_training.chain import example_bytes
from reference_cases import CHAIN_REFERENCE
from tool_runs import run_tool

DIGITS = CHAIN_REFERENCE / "digits"
MODEL, DEN = DIGITS / "train.m0.9.raw", DIGITS / "den.fst"

add_post = functools.partial(run_tool, "nnet3-chain-add-post-to-egs")


def test_small_posteriors(tmp_path: Path) -> None:
    """Posteriors below --clip-threshold become 0."""
    options = "--type=den", "--leaky-hmm-coefficient=0.1"
    for threshold in ("0", "0.01"):
        tables = f"ark:{DIGITS}/cegs8.ark", f"ark:{tmp_path}/{threshold}"
        add_post(*options, f"--clip-threshold={threshold}", MODEL, DEN, *tables, expected=0)

    archives = (read_chain_examples(tmp_path / threshold) for threshold in ("0", "0.01"))
    for whole, clipped in zip(*archives, strict=True):
        values, found = (each.inputs[-1].values for each in (whole, clipped))
        np.testing.assert_array_equal(found, np.where(values < 0.01, 0.0, values))
        assert 0 < np.count_nonzero(found) < found.size


def test_training_leaves_posteriors_out(tmp_path: Path) -> None:
    """Training without lwf-scale ends with the same network, with or without the further input."""
    given, changed = DIGITS / "cegs8.ark", tmp_path / "changed.egs"
    add_post(MODEL, DEN, f"ark:{given}", f"ark:{changed}")

    networks = []
    for examples in (given, changed):
        networks.append(tmp_path / f"{examples.stem}.raw")
        train = "nnet3-chain-train", "--xent-regularize=0.1", MODEL, DEN
        run_tool(*train, f"ark:{examples}", networks[-1], expected=0)

    assert networks[0].read_bytes() == networks[1].read_bytes()


COUNTS = {
    0: 4.22712, 1: 47.20829, 7: 0.06467, 8: 1.0, 9: 2.5, 20: 1.0, 21: 2.0, 44: 0.38887,
    45: 4.11113, 46: 1.0, 47: 5.1864, 48: 0.6864, 49: 7.12711, 56: 1.0, 57: 2.5,
}  # fmt: skip
"""Kaldi's soft counts of pdfs in cegs8.ark."""

SUMS, SQUARES = 753.92802, 420.44946
"""Kaldi's sum of the absolute sums of outputs of train.m0.0.raw, and the trace of squares."""

acc_lda_stats = functools.partial(run_tool, "nnet3-chain-acc-lda-stats")


def test_lda_statistics(tmp_path: Path) -> None:
    """Statistics of examples of a chain model are Kaldi's, and may be written as text."""
    arguments = DIGITS / "train.m0.0.raw", f"ark:{DIGITS / 'cegs8.ark'}"
    for binary in ("true", "false"):
        done = acc_lda_stats(f"--binary={binary}", *arguments, tmp_path / "stats")
        assert "Processed 8 examples.\n" in done.stderr
        assert "Accumulated stats, soft frame count = 80.  Wrote to " in done.stderr

        stats = LdaStats.read(open_reader(tmp_path / "stats"))

        counts = np.zeros(62)
        counts[list(COUNTS)] = list(COUNTS.values())
        np.testing.assert_allclose(stats.counts, counts, atol=1e-5)
        assert np.abs(stats.sums).sum() == pytest.approx(SUMS, rel=1e-6)
        assert np.trace(stats.squares) == pytest.approx(SQUARES, rel=1e-6)


def test_lda_statistics_of_an_alignment(tmp_path: Path) -> None:
    """Where paths are not bound to times, the alignment says the pdfs; without one is no result."""
    example = next(iter(read_chain_examples(DIGITS / "cegs8.ark")))
    known = example.outputs[0].supervision
    loose = attrs.evolve(known, fst=None, e2e_fsts=[known.fst], alignment_pdfs=[7] * 4 + [61] * 6)
    outcomes = []
    for number, supervision in enumerate((loose, attrs.evolve(loose, alignment_pdfs=()))):
        output = attrs.evolve(example.outputs[0], supervision=supervision)
        path = tmp_path / f"{number}.cegs"
        path.write_bytes(b"a " + example_bytes(attrs.evolve(example, outputs=[output])))
        outcomes.append(acc_lda_stats(MODEL, f"ark:{path}", tmp_path / f"stats{number}"))

    counts = LdaStats.read(open_reader(tmp_path / "stats0")).counts
    assert {int(pdf): counts[pdf] for pdf in np.flatnonzero(counts)} == {7: 4.0, 61: 6.0}
    assert outcomes[1].returncode == 255
    assert "example 'a': expected a pdf for each of 10 frames, because" in outcomes[1].stderr
