"""The command lines for chain models, on Kaldi's digits system."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnet3_descriptors import read_nnet, unvectorize, vectorize, write_nnet
from nnet3_descriptors.components import BatchNormComponent
from nnet3_descriptors.files import CompressedMatrix
from nnet3_training import read_chain_examples
from reference_cases import CHAIN_REFERENCE, kaldi_commands
from tool_commands import said_by as run

DIGITS = CHAIN_REFERENCE / "digits"
COMMANDS = kaldi_commands(DIGITS)


@pytest.fixture(autouse=True)
def folder(in_empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has Kaldi's files, and commands find the tools."""
    for name in ("cegs8.ark", "cegs.ark", "den.fst", "initial.raw", "train.m0.9.raw"):
        shutil.copy(DIGITS / name, in_empty_folder)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")


def keys(path: str) -> list[str]:
    """The keys of an archive."""
    return [example.key for example in read_chain_examples(path)]


def test_copies_with_a_shift() -> None:
    """The archive equals Kaldi's byte for byte."""
    errors = run(COMMANDS["copy.shift"])

    assert "Read 8 neural-network training examples, wrote 8" in errors
    assert Path("copy.shift.ark").read_bytes() == (DIGITS / "copy.shift.ark").read_bytes()


def test_more_context_than_there_is() -> None:
    """Examples that have less context than is wanted stay as they are; a line says so once."""
    errors = run(
        "nnet3-chain-copy-egs --left-context=9 --right-context=12 ark:cegs8.ark ark:same.ark"
    )

    assert Path("same.ark").read_bytes() == Path("cegs8.ark").read_bytes()
    lines = [line for line in errors.splitlines() if "WARNING" in line]
    requested = "WARNING (nnet3-chain-copy-egs) You requested"
    assert len(lines) == 2
    assert lines[0].startswith(
        f"{requested} --left-context=9, but example only has left-context of 8: "
    )
    assert lines[1].startswith(
        f"{requested} --right-context=12, but example only has right-context of 10: "
    )
    assert "WARNING" not in run("nnet3-chain-copy-egs --left-context=8 ark:cegs8.ark ark:b")


def test_copies_by_turns() -> None:
    """Unchanged examples are written as they are, in turn to several tables."""
    run("nnet3-chain-copy-egs ark:cegs8.ark ark:1.ark ark,scp:2.ark,2.scp")

    whole = Path("cegs8.ark").read_bytes()
    assert (keys("1.ark"), keys("2.ark")) == (keys("cegs8.ark")[::2], keys("cegs8.ark")[1::2])
    assert len(whole) == sum(Path(name).stat().st_size for name in ("1.ark", "2.ark"))
    run("nnet3-chain-copy-egs scp:2.scp ark:3.ark")
    assert Path("3.ark").read_bytes() == Path("2.ark").read_bytes()


def test_copies_to_text_and_back() -> None:
    """Examples in text are read from a pipe, and written in binary again."""
    run("nnet3-chain-copy-egs ark:cegs8.ark ark,t:text.ark")
    assert b"\0" not in Path("text.ark").read_bytes()
    run("nnet3-chain-copy-egs 'ark:cat text.ark |' 'ark:| cat > back.ark'")

    for one, other in zip(
        read_chain_examples("back.ark"), read_chain_examples("cegs8.ark"), strict=True
    ):
        np.testing.assert_allclose(one.inputs[0].values, other.inputs[0].values, rtol=1e-6)
        mine, yours = one.outputs[0].supervision, other.outputs[0].supervision
        np.testing.assert_array_equal(mine.fst.labels, yours.fst.labels)
        np.testing.assert_array_equal(mine.deriv_weights, yours.deriv_weights)


def test_copies_with_weights_and_names() -> None:
    """Tables by key give the factor of the weight, and the name of the output."""
    first, second = keys("cegs8.ark")[:2]
    Path("weights").write_text(f"{first} 0.25\n{second} 2\n", encoding="utf-8")
    Path("names").write_text(f"{first} output-a\n{second} output-b\n", encoding="utf-8")

    errors = run(
        "nnet3-chain-copy-egs --weights=ark:weights --outputs=ark:names ark:cegs8.ark ark:new.ark"
    )

    found = list(read_chain_examples("new.ark"))
    assert errors.count("No weight for example key") == 6
    assert [example.outputs[0].name for example in found] == ["output-a", "output-b"]
    assert [example.outputs[0].supervision.weight for example in found] == [0.25, 2.0]


def test_merges() -> None:
    """Minibatches follow the rules, and the log has Kaldi's figures."""
    errors = run(COMMANDS["merge"])

    merged = list(read_chain_examples("merged.ark"))
    log = (DIGITS / "train.m0.9.log").read_text()
    for line in ("46={32->7,d=28}", re.search(r"Processed 252 egs.*", log)[0]):
        assert line in errors
    assert [example.key for example in merged] == [f"merged-{number}-32" for number in range(7)]
    assert merged[0].outputs[0].supervision.num_sequences == 32


def test_keeps_compressed_features() -> None:
    """Features stay compressed when times are moved; merged ones are compressed on request."""
    run("nnet3-chain-copy-egs --frame-shift=-2 ark:cegs8.ark ark:moved.ark")
    run("nnet3-chain-merge-egs --minibatch-size=8 ark:cegs8.ark ark:full.ark")
    command = "nnet3-chain-merge-egs --compress=true --minibatch-size=8 ark:cegs8.ark ark:small.ark"
    run(command)

    for moved, known in zip(
        read_chain_examples("moved.ark"), read_chain_examples("cegs8.ark"), strict=True
    ):
        assert isinstance(known.inputs[0].matrix, CompressedMatrix)
        np.testing.assert_array_equal(moved.inputs[0].values, known.inputs[0].values)
        assert isinstance(moved.inputs[0].matrix, CompressedMatrix)
        assert ((moved.inputs[0].indexes - known.inputs[0].indexes) == (0, -2, 0)).all()
    [full], [small] = (list(read_chain_examples(name)) for name in ("full.ark", "small.ark"))
    assert isinstance(small.inputs[0].matrix, CompressedMatrix)
    assert not isinstance(full.inputs[0].matrix, CompressedMatrix)
    # One byte for each value, with at least 63 steps between two quartiles of a column.
    difference = np.abs(small.inputs[0].values - full.inputs[0].values).max(axis=0)
    assert (difference <= np.ptp(full.inputs[0].values, axis=0) / 63).all()


def test_merges_by_rules() -> None:
    """At the end, the remaining examples are merged if a rule allows it."""
    errors = run("nnet3-chain-merge-egs --minibatch-size=10=9/50=2:3,5 ark:cegs8.ark ark:m")

    assert keys("m") == ["merged-0-5", "merged-1-3"]
    assert "46={3->1,5->1,d=0}" in errors


def test_merges_languages() -> None:
    """The language in a key names the output; keys of minibatches have it, too."""
    data = Path("cegs8.ark").read_bytes()
    for key in keys("cegs8.ark"):
        data = data.replace(f"{key} ".encode(), f"{key}?lang=xy ".encode())
    Path("two.ark").write_bytes(data)

    run("nnet3-chain-merge-egs --multilingual-eg --minibatch-size=8 ark:two.ark ark:m")

    (merged,) = read_chain_examples("m")
    assert (merged.key, merged.outputs[0].name) == ("merged-0-8?lang=xy", "output-xy")


def test_shuffles() -> None:
    """The output has all examples in another order, which depends on the seed."""
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        run(f"nnet3-chain-shuffle-egs ark:cegs8.ark ark:{name} --srand={seed}")

    assert Path("a").read_bytes() == Path("b").read_bytes()
    assert keys("a") != keys("c")
    assert sorted(keys("a")) == sorted(keys("cegs8.ark"))
    assert keys("a") != keys("cegs8.ark")


@pytest.mark.parametrize("case", json.loads((DIGITS / "draws.json").read_text()))
def test_draws(case: dict[str, Any]) -> None:
    """Seeds have Kaldi's effects: which examples go where, and in which order."""
    run(case["command"])

    known = keys("cegs.ark")
    for number, examples in enumerate(case["examples"], start=1):
        assert keys(f"{number}.ark") == [known[example] for example in examples]


@pytest.mark.parametrize("name", ["both", "max"])
def test_derivatives_of_some_times(name: str) -> None:
    """Derivatives that are cut off in time change parameters as in Kaldi, within 2e-4."""
    folder = CHAIN_REFERENCE / "derivative_times"
    commands = kaldi_commands(folder)
    shutil.copy(folder / "initial.raw", "initial.raw")
    before, wanted = (vectorize(read_nnet(folder / f"{each}.raw")) for each in ("initial", name))

    run(commands[name].replace("../digits/", ""))

    found = vectorize(read_nnet(f"{name}.raw"))
    assert np.linalg.norm(found - wanted) < 2e-4 * np.linalg.norm(wanted - before)


def test_takes_a_subset() -> None:
    """The requested number of different examples is chosen, or all if there are no more."""
    errors = run("nnet3-chain-subset-egs --n=8 --srand=1 ark:cegs.ark ark:some")
    assert "Selected a subset of 8 out of 252 nnet3+chain training examples" in errors
    assert len(set(keys("some")) & set(keys("cegs.ark"))) == 8

    run("nnet3-chain-subset-egs --randomize-order=false ark:cegs8.ark ark:all")
    assert Path("all").read_bytes() == Path("cegs8.ark").read_bytes()


@pytest.mark.parametrize("model", ["initial", "trained"])
def test_computes_the_objective(model: str) -> None:
    """The log lines are Kaldi's."""
    errors = run(COMMANDS[f"prob.{model}"])

    wanted = re.findall(r"Overall log-probability.*", (DIGITS / f"prob.{model}.log").read_text())
    assert sorted(re.findall(r"Overall log-probability.*", errors)) == sorted(wanted)


def test_trains() -> None:
    """Kaldi's own command line, with its pipes, trains; its log has Kaldi's lines."""
    errors = run(COMMANDS["train.m0.9"])

    wanted = (DIGITS / "train.m0.9.log").read_text()
    pattern = r"'(\S+)' (?:for minibatches (\d)-\d )?is (\S+) (.*)frames"
    found = {match[:2]: match[2:] for match in re.findall(pattern, errors)}
    kaldi = {match[:2]: match[2:] for match in re.findall(pattern, wanted)}
    assert set(found) == set(kaldi)
    assert len(found) == 14
    for key, (value, rest) in kaldi.items():
        # Kaldi applies constraints and repairs units at random.
        assert float(found[key][0]) == pytest.approx(float(value), abs=5e-3)
        assert rest.split()[-1] == found[key][1].split()[-1]
    assert "[this line is to be parsed by a script:] log-prob-per-frame=-0.62" in errors
    trained, kaldis = (
        vectorize(read_nnet(p)) for p in ("train.m0.9.raw", DIGITS / "train.m0.9.raw")
    )
    assert np.linalg.norm(trained - kaldis) < 1e-2 * np.linalg.norm(kaldis)


def test_steps_back() -> None:
    """With backstitch, the objectives between the two steps have separate lines, as in Kaldi."""
    run("nnet3-chain-merge-egs --minibatch-size=4 ark:cegs8.ark ark:merged.ark")
    errors = run(
        "nnet3-chain-train --srand=1 --print-interval=1 --backstitch-training-scale=0.3 "
        "--backstitch-training-interval=2 initial.raw den.fst ark:merged.ark new.raw"
    )

    assert "Overall average objective function for 'output' is" in errors
    assert "Overall average objective function for 'output_backstitch' is" in errors
    assert Path("new.raw").exists()


def test_combines_models() -> None:
    """The best average is written, with batch-norm statistics of the examples."""
    errors = run(
        "nnet3-chain-combine --leaky-hmm-coefficient=0.1 den.fst train.m0.9.raw train.m0.9.raw "
        "initial.raw ark:cegs8.ark out.raw"
    )

    first, second, third = (
        float(number) for number in re.findall(r"(?:model|function) is (-[0-9.]+)", errors)
    )
    assert second == first > third
    lines = [line.removeprefix("LOG (nnet3-chain-combine) ") for line in errors.splitlines()]
    begin = lines.index("Recomputing stats on nnet (affects batch-norm)")
    assert lines[begin - 1].startswith("Combining 1 nnets, objective function changed from")
    names = [line.partition(" is ")[0] for line in lines[begin + 1 : begin + 3]]
    assert names == [f"Overall log-probability for '{name}'" for name in ("output", "output-xent")]
    assert lines[begin + 3] == "Done recomputing stats."
    found, given = read_nnet("out.raw"), read_nnet("train.m0.9.raw")
    np.testing.assert_array_equal(vectorize(found), vectorize(given))
    counts = {
        (one.count, other.count)
        for one, other in zip(found.components, given.components, strict=True)
        if isinstance(one, BatchNormComponent)
    }
    assert counts
    assert all(one != other for one, other in counts)
    assert not any(one.test_mode for one in found.components if isinstance(one, BatchNormComponent))


@pytest.mark.parametrize(
    ("xent", "wanted"),
    [("0", (-0.328937, -0.297057, -0.392876)), ("0.1", (-1.80123, -1.42883, -1.73423))],
)
def test_combination_counts_all_terms(xent: str, wanted: tuple[float, float, float]) -> None:
    """Objectives are Kaldi's: with l2 regularization, and with cross-entropy if it has a weight.

    Statistics are stored at the cross-entropy output in any case.
    """
    shutil.copy(DIGITS / "train.m0.0.raw", "train.m0.0.raw")
    run("nnet3-chain-merge-egs --minibatch-size=8 ark:cegs8.ark ark:merged.ark")
    errors = run(
        "nnet3-chain-combine --leaky-hmm-coefficient=0.1 --l2-regularize=0.00005 "
        f"--xent-regularize={xent} den.fst train.m0.9.raw train.m0.0.raw initial.raw "
        "ark:merged.ark out.raw"
    )

    found = [float(each) for each in re.findall(r"(?:model|function) is (-[0-9.]+)", errors)]
    assert found == pytest.approx(wanted, abs=1e-5)
    nnet = read_nnet("out.raw")
    number = nnet.component_names.index("prefinal-xent.relu")
    assert nnet.components[number].count == 80.0


def test_combination_is_an_average() -> None:
    """Two models whose parameters lie on both sides of a good one's are averaged."""
    given = read_nnet("train.m0.9.raw")
    vector = vectorize(given)
    rng = np.random.default_rng(0)
    noise = 0.3 * rng.standard_normal(vector.size).astype(np.float32) * np.abs(vector)
    for name, sign in (("a.raw", 1), ("b.raw", -1)):
        write_nnet(unvectorize(given, vector + sign * noise), name)

    errors = run(
        "nnet3-chain-combine --batchnorm-test-mode=true den.fst a.raw b.raw ark:cegs8.ark out.raw"
    )

    assert "Combining 2 nnets" in errors
    np.testing.assert_allclose(vectorize(read_nnet("out.raw")), vector, atol=1e-6)
