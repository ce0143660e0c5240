"""The command lines that make the data of chain models, on Kaldi's digits system."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import attrs
import numpy as np
import pytest
from chain_graphs import largest_difference
from kaldi_tables import read_by_key, write_arrays
from nnet3_tables import ObjectWriter, read_objects
from nnet3_training import TrainingExample, read_chain_examples, read_fst
from nnet3_training.chain import example_bytes, read_supervision
from nnet3_training.chain.graphs import SupervisionSplitter
from nnet3_training.egs import read_stored_matrix
from reference_cases import CHAIN_REFERENCE, ROOT, kaldi_commands
from tool_commands import said_by as run

DIGITS = CHAIN_REFERENCE / "digits"
FOLDER = shlex.quote(str(DIGITS))
COMMANDS = kaldi_commands(DIGITS)
NEEDED = ("tree", "0.trans_mdl", "phones.txt", "phone_seqs.txt", "normalization.fst", "sup.ark")


@pytest.fixture(autouse=True)
def folder(in_empty_folder: Path) -> None:
    """The current folder has Kaldi's files."""
    for name in NEEDED:
        shutil.copy(DIGITS / name, in_empty_folder)


def test_phone_lm_and_denominator() -> None:
    """Kaldi's command lines make Kaldi's FSTs, up to the state numbers of the denominator."""
    errors = run(COMMANDS["phone-lm"])
    assert "pruned from 45 to 45" in errors
    assert "Created phone language model with 45 states and 48 arcs." in errors
    assert read_fst("phone_lm.fst").equals(read_fst(DIGITS / "phone_lm.fst"))

    errors = run(COMMANDS["den"])
    found, wanted = read_fst("den.fst"), read_fst(DIGITS / "den.fst")
    for what in (
        "phone-LM FST is 45 and 48",
        "context-dependent LM FST is 45 and 48",
        "transition-id FST is 89 and 136",
        "transition-id FST after removing epsilons is 45 and 92",
        "transition-id FST after reversed minimization is 47 and 105 (pass 1)",
        "transition-id FST after regular minimization is 39 and 89 (pass 1)",
        "transition-id FST after reversed minimization is 41 and 91 (pass 2)",
        "transition-id FST after regular minimization is 41 and 91 (pass 2)",
        "transition-id FST after reversed minimization is 43 and 93 (pass 3)",
        "transition-id FST after regular minimization is 43 and 93 (pass 3)",
        "transition-id FST after removing any epsilons introduced by reversal is 37 and 84",
    ):
        assert f"Number of states and arcs in {what}\n" in errors
    assert (
        "Number of states is 37 and arcs 84; number of states with in-degree <= 3 is 36 and with "
        "out-degree <= 3 is 36\n"
    ) in errors
    assert largest_difference(found, wanted) < 1e-6
    assert read_fst("normalization.fst").num_arcs == 155


def test_supervisions() -> None:
    """Kaldi's command line makes Kaldi's archive; its text form has the same contents."""
    shutil.copy("sup.ark", "wanted.ark")
    errors = run(COMMANDS["supervision"])

    assert "information for 60 utterances, errors on 0" in errors
    found, wanted = (read_by_key(name, read_supervision) for name in ("sup.ark", "wanted.ark"))
    assert list(found) == list(wanted)
    assert all(found[key].fst.equals(wanted[key].fst) for key in wanted)
    assert Path("sup.ark").stat().st_size == Path("wanted.ark").stat().st_size

    text = COMMANDS["supervision"].replace("ark:sup.ark", "ark,t:sup.txt")
    run(text.replace("ark:phones.txt", "'ark:head -n 2 phones.txt |'"))
    for each in read_objects("ark:sup.txt", read_supervision):
        assert each.value.fst.equals(wanted[each.key].fst)


def test_supervisions_of_what_does_not_fit() -> None:
    """Too many phones for the frames give a warning; the tool fails if most utterances do."""
    Path("phones.txt").write_text("a 1 1 ; 29 1 ; 30 1 ; 31 1 ; 1 1\nb 1 0\n", encoding="utf-8")

    errors = run(COMMANDS["supervision"], status=1)

    assert "for utterance a: there are too many phones for the frames" in errors
    assert "for utterance b: the alignment has phone 1 for 0 frames" in errors
    assert errors.endswith("chain-get-supervision: 2 of 2 utterances failed\n")


@pytest.mark.parametrize("lattices", ["lattices.txt", "lattices.ark"])
@pytest.mark.parametrize(
    ("name", "archive"), [("supervision", "sup.ark"), ("scaled", "sup.scaled.ark")]
)
def test_supervisions_of_lattices(name: str, archive: str, lattices: str) -> None:
    """Phone lattices become Kaldi's supervisions, state by state, with graph costs within 1e-5.

    Without scaling they are the same bytes. A lattice without alignment is left out.
    """
    folder = CHAIN_REFERENCE / "lattices"
    bad = b"bad \n0 1 5 0,0,1\n1 2 5 0,0,1\n1\n2\n\n"
    Path("lattices.ark").write_bytes((folder / lattices).read_bytes() + bad)

    errors = run(kaldi_commands(folder)[name].replace("../digits/", ""))

    assert "for utterance bad: final state 1 of the lattice is at frame 1 of 2" in errors
    assert "information for 3 utterances, errors on 1" in errors
    found, wanted = (read_by_key(each / archive, read_supervision) for each in (Path(), folder))
    assert list(found) == list(wanted)
    for known, kaldi in zip(found.values(), wanted.values(), strict=True):
        assert known.frames_per_sequence == kaldi.frames_per_sequence
        for column in ("labels", "destinations", "splits"):
            mine, theirs = (getattr(each.fst, column) for each in (known, kaldi))
            np.testing.assert_array_equal(mine, theirs)
        assert known.fst.costs == pytest.approx(kaldi.fst.costs, abs=1e-5)
        assert known.fst.final_costs == pytest.approx(kaldi.fst.final_costs, abs=1e-5)
    is_same = Path(archive).read_bytes() == (folder / archive).read_bytes()
    assert is_same or name == "scaled"


def test_normalizes_examples() -> None:
    """Examples without weights get Kaldi's weights; without them, a tool names the one to use."""
    wanted = list(read_chain_examples(DIGITS / "cegs8.ark"))
    supervisions = read_by_key("sup.ark", read_supervision)
    with ObjectWriter("ark:bare.ark") as writer:
        for example in wanted:
            key, _, first = example.key.rpartition("-")
            [output] = example.outputs
            part = SupervisionSplitter(supervisions[key]).part(int(first) // 3, 10)
            known = attrs.evolve(part, deriv_weights=output.supervision.deriv_weights)
            bare = attrs.evolve(example, outputs=[attrs.evolve(output, supervision=known)])
            writer.write(example.key, example_bytes(bare))

    compute = f"nnet3-chain-compute-prob {FOLDER}/initial.raw {FOLDER}/den.fst"
    assert re.search(
        r"output 'output': a supervision's FST has an arc without a label, from state \d+ to \d+: "
        "nnet3-chain-normalize-egs removes such arcs",
        run(f"{compute} ark:bare.ark", status=255),
    )
    errors = run("nnet3-chain-normalize-egs normalization.fst ark:bare.ark ark:egs.ark")

    assert "Added normalization to 8 egs; had errors on 0" in errors
    for found, other in zip(read_chain_examples("egs.ark"), wanted, strict=True):
        assert found.key == other.key
        assert found.outputs[0].supervision.fst.equals(other.outputs[0].supervision.fst)
    run(f"{compute} ark:egs.ark")


FEATURES = ROOT / "examples" / "digits" / "train60.feats.ark"
QUOTED = shlex.quote(str(FEATURES))
"""As command lines name them, whatever characters their folder has."""

GIVEN = f"ark:{QUOTED}"


def test_makes_examples() -> None:
    """Kaldi's command line makes Kaldi's number of examples; those at Kaldi's places are equal.

    Kaldi draws the places of gaps between chunks from a device, so they differ from run to run.
    """
    command = COMMANDS["egs"].replace("../../digits/train60.feats.ark", QUOTED)
    errors = run(command)

    assert "Split 60 utts" in errors
    assert "into 252 chunks" in errors
    pairs = pairs_at_the_same_place(Path("cegs.ark"), DIGITS / "cegs.ark")
    assert len(pairs) > 100
    for found, wanted in pairs:
        assert_same_example(found, wanted)


def test_makes_examples_of_whole_utterances() -> None:
    """As in Kaldi, too few frames at the end give no frame of the output."""
    command = COMMANDS["egs"].replace("../../digits/train60.feats.ark", QUOTED)
    errors = run(command.replace("--num-frames=30", "--num-frames=-1"))

    assert "with total length 7236 frames" in errors
    assert "into 60 chunks" in errors
    features = read_by_key(FEATURES, read_stored_matrix)
    examples = {each.key.rpartition("-")[0]: each for each in read_chain_examples("cegs.ark")}
    assert examples.keys() == features.keys()
    assert len({frames.shape[0] % 3 for frames in features.values()}) == 3
    for key, frames in features.items():
        [output], [given] = examples[key].outputs, examples[key].inputs
        assert output.supervision.frames_per_sequence == frames.shape[0] // 3
        assert given.values.shape[0] == 8 + frames.shape[0] + 8


def test_makes_examples_without_times() -> None:
    """Kaldi's command lines make examples with loops; those at Kaldi's places are equal."""
    folder = CHAIN_REFERENCE / "unconstrained"
    commands = kaldi_commands(folder)
    Path("digits").mkdir()
    shutil.copy("phones.txt", "digits/phones.txt")
    made = commands["digits.sup"].replace("../digits/phones", "digits/phones")
    run(made.replace("../digits/", ""))
    assert Path("digits.sup.ark").read_bytes() == (folder / "digits.sup.ark").read_bytes()
    made = commands["digits.cegs"].replace("train60.feats.ark", QUOTED)
    errors = run(made.replace("../digits/", ""))

    assert "Split 3 utts, with total length 432 frames" in errors
    assert "into 16 chunks" in errors
    pairs = pairs_at_the_same_place(Path("digits.cegs.ark"), folder / "digits.cegs.ark")
    assert len(pairs) >= 3
    for found, wanted in pairs:
        [mine], [yours] = found.outputs, wanted.outputs
        if mine.supervision.frames_per_sequence == yours.supervision.frames_per_sequence:
            assert mine.supervision.e2e_fsts[0].equals(yours.supervision.e2e_fsts[0])
            [features], [others] = found.inputs, wanted.inputs
            np.testing.assert_array_equal(features.values, others.values)


def pairs_at_the_same_place(
    found: Path, wanted: Path
) -> list[tuple[TrainingExample, TrainingExample]]:
    """The examples of two archives that begin at the same frame; there are as many of each key."""
    ours, theirs = ({each.key: each for each in read_chain_examples(p)} for p in (found, wanted))
    assert [key.rpartition("-")[0] for key in ours] == [key.rpartition("-")[0] for key in theirs]
    return [(ours[key], theirs[key]) for key in ours if key in theirs]


def assert_same_example(found: TrainingExample, wanted: TrainingExample) -> None:
    """Asserts that features, supervision and weights are the same."""
    [mine], [yours] = found.outputs, wanted.outputs
    np.testing.assert_array_equal(mine.indexes, yours.indexes)
    assert mine.supervision.fst.equals(yours.supervision.fst)
    assert mine.supervision.weight == yours.supervision.weight
    np.testing.assert_array_equal(mine.supervision.deriv_weights, yours.supervision.deriv_weights)
    [features], [others] = found.inputs, wanted.inputs
    np.testing.assert_array_equal(features.indexes, others.indexes)
    np.testing.assert_array_equal(features.values, others.values)


def test_examples_with_more() -> None:
    """Examples can have i-vectors, weights of derivatives, and several lengths."""
    supervisions = read_by_key("sup.ark", read_supervision)
    lengths = {key: each.frames_per_sequence for key, each in supervisions.items()}
    ivectors = {key: np.arange(2.0 * each).reshape(each, 2) for key, each in lengths.items()}
    write_arrays("ark:iv.ark", ivectors)
    write_arrays("ark:weights.ark", {key: np.linspace(0, 1, each) for key, each in lengths.items()})

    errors = run(
        "nnet3-chain-get-egs --num-frames=28,20 --left-context=4 --right-context=4 --long-key "
        "--frame-subsampling-factor=3 --online-ivectors=ark:iv.ark --online-ivector-period=3 "
        f"--deriv-weights-rspecifier=ark:weights.ark {GIVEN} ark:sup.ark ark:egs.ark"
    )

    assert "to multiples of --frame-subsampling-factor=3, to: 30,21" in errors
    for example in read_chain_examples("egs.ark"):
        key, first, left, count, right, form = example.key.rsplit("-", 5)
        [output] = example.outputs
        assert (left, right, form) == ("4", "4", "v1")
        assert [io.name for io in example.inputs] == ["input", "ivector"]
        assert example.inputs[1].values.shape == (1, 2)
        known = output.supervision
        assert known.frames_per_sequence == int(count) // 3
        assert (known.fst.labels == 0).any()
        frames = int(first) // 3 + np.arange(len(known.deriv_weights))
        assert (known.deriv_weights <= frames / (lengths[key] - 1) + 1e-6).all()
