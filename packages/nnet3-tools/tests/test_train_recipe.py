"""nnet3-train-recipe, and the page about a run."""

from __future__ import annotations

import importlib.util
import re
import sys
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labelled_features import CONFIG, LAYERS, SPLICE, write_features
from nnet3_descriptors import read_nnet
from nnet3_report.pages import training_page
from nnet3_report.pages.training_page import MOST_TICKS, round_iterations
from nnet3_tables import MatrixWriter
from nnet3_tools.recipes import runs
from nnet3_tools.recipes.from_scratch import nnet3_train_recipe
from nnet3_tools.recipes.runs import write_report
from nnet3_training import ChainOptions
from nnet3_training.recipes import IterationRecord, RecipeOptions, TrainingRun
from page_elements import Elements
from small_networks import stacked
from tool_runs import run_tool

DATA = ("--nnet-config=nnet.config", "--features=ark:feats.ark", "--alignments=ark:ali.txt")
OPTIONS = ("--num-jobs-final=2", "--frames-per-example=10", "--minibatch-size=1:8",
           "--held-out-every=5", "--initial-learning-rate=0.02")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files for a run."""
    monkeypatch.chdir(tmp_path)
    write_files()
    return tmp_path


def write_files() -> None:
    """Writes the files for a run to the current folder; one utterance has no labels."""
    Path("nnet.config").write_text(CONFIG, encoding="utf-8")
    keys = [f"u{number}" for number in range(12)]
    lines = write_features("feats.ark", keys, np.random.default_rng(2))
    del lines["u3"]
    Path("ali.txt").write_text("".join(lines.values()), encoding="utf-8")


def recipe(*arguments: str, expected: int = 0) -> CompletedProcess[str]:
    """Runs nnet3-train-recipe within this process."""
    return run_tool("nnet3-train-recipe", *arguments, expected=expected)


def test_run(folder: Path) -> None:
    """A run trains, reports its progress, and writes its page; started again, it does nothing."""
    done = recipe(*DATA, *OPTIONS, "--num-epochs=3", "--jobs=2", "--report=page.html", "run")

    assert "WARNING (nnet3-train-recipe) No label for key u3" in done.stderr
    assert "11 utterances" in done.stderr
    objectives = re.findall(r"objective (-[\d.]+) per frame, ", done.stderr)
    assert float(objectives[-1]) > float(objectives[0])
    assert re.search(r"has an objective of -[\d.]+ per frame at 'output' on held-out", done.stderr)
    network = (folder / "run" / "final.raw").read_bytes()
    page = (folder / "page.html").read_text()

    again = recipe("--report=page.html", "run")
    assert (folder / "page.html").read_text() == page
    assert "the run in 'run' has ended" in again.stderr
    assert (folder / "run" / "final.raw").read_bytes() == network
    others = ("--features=ark:corrected.ark", "--alignments=ark:corrected.txt")
    corrected = recipe(DATA[0], *others, *OPTIONS, "--num-epochs=3", "run")
    for told, wanted in ((done, False), (again, False), (corrected, True)):
        warning = "run in 'run' has its examples, and does not read the data that are given; to"
        assert (warning in told.stderr) == wanted
    check_page(page)
    check_page(training_page("a < b", TrainingRun.read("run")))
    assert "<title>a &lt; b</title>" in training_page("a < b", TrainingRun.read("run"))
    assert read_nnet(folder / "run" / "final.raw").num_parameters == 147


@pytest.mark.any_versions
def test_a_job_that_diverges(folder: Path) -> None:
    """A warning and the page name the job and the reason; the run goes on without it."""
    rng = np.random.default_rng(3)
    with MatrixWriter("ark:feats.ark") as writer:
        for number in range(12):
            features = rng.standard_normal((40, 4), dtype=np.float32)
            # A single example of the last utterance has numbers that are too large.
            writer.write(
                f"u{number}", features[:12] * np.float32(3e37) if number == 11 else features
            )
    (folder / "ali.txt").write_text(
        "".join(f"u{n} {' '.join(('012' * 40)[: 12 if n == 11 else 40])}\n" for n in range(12))
    )

    done = recipe(*DATA, *OPTIONS, "--num-jobs-initial=2", "--num-epochs=2", "--compress=false",
                  "--diagnostic-examples=2", "--report=page.html", "run")  # fmt: skip

    warnings = re.findall(
        r"WARNING \(nnet3-train-recipe\) iteration (\d) of 2: job (\d) of 2 diverged and is left "
        r"out of the average: the objective at 'output' is -\S+ per frame, that of the best job",
        done.stderr,
    )
    assert [number for number, _ in warnings] == ["1", "2"]
    assert done.stderr.count("2 jobs, 1 of them averaged, learning rate") == 2
    page = (folder / "page.html").read_text()
    check_page(page)
    assert "Jobs that diverged" in page
    assert all(f"{int(job)} of 2</td><td>the objective at" in page for _, job in warnings)


@pytest.mark.any_versions
def test_a_layer_that_begins_with_zeros(folder: Path) -> None:
    """A change relative to zeros is no number: the field is empty, and the row keeps its place."""
    [classes] = [line for line in CONFIG.splitlines() if line.startswith("component name=classes")]
    zeros = f"{classes} param-stddev=0 bias-stddev=0\n"
    (folder / "nnet.config").write_text(zeros + CONFIG.replace(f"{classes}\n", ""))
    recipe(*DATA, *OPTIONS, "--num-epochs=2", "--report=page.html", "run")

    first, *others = TrainingRun.read(folder / "run").iterations
    assert list(first.changes) == ["hidden"]
    assert all(list(record.changes) == ["classes", "hidden"] for record in others)
    page = (folder / "page.html").read_text()
    table = page.partition("<h2>Relative change of parameters</h2>")[2]
    assert re.findall(r"<tr><td>(\w+)</td>(<td></td>)?", table)[:2] == [
        ("classes", "<td></td>"), ("hidden", "")
    ]  # fmt: skip


def test_options_on_the_page(tmp_path: Path) -> None:
    """An option begins with "--" where the command line has it; others are as in Python."""
    options = RecipeOptions(chain=ChainOptions())
    run = TrainingRun(
        folder=tmp_path, options=options, archives=None, iterations=(), diagnostics={}, final=None
    )
    page = training_page("run", run)
    names = re.findall(r'<tr><th>([^<]*)</th><td class="wrapped">', page)
    known = {name for parameter in nnet3_train_recipe.params for name in parameter.opts}

    assert len(names) == len(options.values) - 2  # those of fine-tuning
    assert [name for name in names if name not in known] == ["apply_deriv_weights"]


def test_iterations_with_other_patterns_of_dropout(tmp_path: Path) -> None:
    """Each pattern has a curve, over the iterations that have it."""
    records = tuple(
        IterationRecord(
            number=number, learning_rate=0.1, jobs=(), changes={}, saturation={}, seconds=1.0,
            dropout=dropout,
        )
        for number, dropout in enumerate(({"a*": 0.25}, {"b*": 0.5, "a*": 0.75}, {}))
    )  # fmt: skip
    run = TrainingRun(
        folder=tmp_path, options=RecipeOptions(), archives=None, iterations=records,
        diagnostics={}, final=None,
    )  # fmt: skip
    drawing = training_page("run", run).partition("Part of values that dropout drops</h3>")[2]

    curves = re.findall(r'd="M ([^H"]*)"/>\n<text class="legend[^>]*>([^<]*)<', drawing)
    assert curves == [("70.0 145.2 L 530.0 27.8", "a*"), ("530.0 86.5", "b*")]


@given(st.integers(0, 1), st.integers(0, 5000) | st.sampled_from([2**50, 2**80]))
def test_numbers_below_a_curve(first: int, length: int) -> None:
    """There are a few multiples of a round number, evenly apart, within the range."""
    ticks = round_iterations(np.array([first, first + length], np.float64))

    assert all(first <= tick <= first + length for tick in ticks)
    assert len(ticks) <= MOST_TICKS
    assert len(ticks) >= min(length + 1, 3)
    distances = {after - before for before, after in pairwise(ticks)}
    assert len(distances) <= 1
    assert all(str(step).rstrip("0") in ("1", "2", "5") for step in distances)


def check_page(page: str) -> None:
    """The page is well formed, needs no other file, and shows everything."""
    parser = Elements()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"(src|href)=|@import|url\(", page)
    for title in ("Objective of output, per frame", "Accuracy at output", "learning rate",
                  "Seconds of an iteration", "Relative change of parameters", "Clipped steps",
                  "Saturated units"):  # fmt: skip
        assert title in page
    for name in ("hidden", "classes", "held out</text>", "trained on</text>", "in training</text>"):
        assert name in page
    for title in ("Seconds of an iteration", "Frames per second", "Effective learning rate"):
        levels = re.findall(r'class="tick"[^>]*>([^<]*)<', page.partition(f"<h3>{title}</h3>")[2])
        assert levels[0] == "0"
    assert "<p>None in any iteration.</p>" in page.partition("<h2>Saturated units</h2>")[2]
    assert '<th>--dropout-schedule</th><td class="wrapped">none</td>' in page


@pytest.mark.any_versions
def test_a_run_that_was_broken_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page exists before the end, and an interrupted run needs only its folder."""

    def stop(folder: Path, path: str) -> None:
        write_report(folder, path)
        sys.exit(9)

    options = ("--num-epochs=2", "--seed=3")
    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_report", stop)
        recipe(*DATA, *OPTIONS, *options, "--report=page.html", "part", expected=9)
    assert "1 of 3 iterations are done" in (folder / "page.html").read_text()

    recipe("part")
    assert (folder / "part" / "final.raw").exists()
    refused = recipe("--seed=4", "part", expected=255)
    assert "part: the run there has seed = 3, expected 4" in refused.stderr


@pytest.mark.any_versions
def test_a_run_without_its_examples(folder: Path) -> None:
    """A run that was killed before its examples were made needs the data again, and says so."""
    options = ("--num-epochs=1", "--seed=3")
    recipe(*DATA[:2], "--alignments=ark:none.txt", *OPTIONS, *options, "early", expected=255)
    assert (folder / "early" / "recipe.json").exists()

    alone = recipe("early", expected=255)
    assert "the run in 'early' has not made its examples: give --features or" in alone.stderr
    recipe(*DATA, *OPTIONS, *options, "early")


@pytest.mark.any_versions
def test_a_corrected_command(folder: Path) -> None:
    """After a mistake that no iteration survived, the corrected command alone decides."""
    wrong = ("--frames-per-example=500", "--num-epochs=7")
    too_short = recipe(*DATA, *OPTIONS[:1], *wrong, "run", expected=255)
    assert "too short for an example" in too_short.stderr

    recipe(*DATA, *OPTIONS, "--num-epochs=1", "run")
    recipe(*DATA, *OPTIONS, "--num-epochs=1", "other")
    finals = [(folder / name / "final.raw").read_bytes() for name in ("run", "other")]
    assert finals[0] == finals[1]


@pytest.mark.any_versions
def test_targets(folder: Path) -> None:
    """Targets train a network, from features or ready examples; their columns must fit."""
    config = stacked(4, *LAYERS[:-1], splice=SPLICE, objective="quadratic")
    (folder / "nnet.config").write_text(config)
    rng = np.random.default_rng(3)
    with MatrixWriter("ark:targets.ark") as targets, MatrixWriter("ark:wide.ark") as wide:
        for number in range(12):
            targets.write(f"u{number}", rng.standard_normal((40, 3), dtype=np.float32))
            wide.write(f"u{number}", np.zeros((40, 4), np.float32))
    arguments = (*DATA[:2], *OPTIONS, "--num-epochs=1")

    done = recipe(*arguments, "--targets=ark:targets.ark", "run")
    assert re.search(r"per frame at 'output' on held-out examples\n", done.stderr)
    egs = "ark:cat run/archives/train.*.ark |"
    recipe(DATA[0], *OPTIONS, "--held-out-every=4", "--num-epochs=1", f"--egs={egs}", "egs")
    assert TrainingRun.read("egs").archives.utterances == 10
    refused = recipe(*arguments, "--targets=ark:wide.ark", "no", expected=255)
    assert "--targets: expected 3 columns, as the output has, found 4 for 'u0'" in refused.stderr


@pytest.mark.skipif(importlib.util.find_spec("distributed") is not None, reason="Dask is installed")
def test_without_dask(folder: Path) -> None:
    """Without the extra, an error says what to install."""
    done = recipe(*DATA, *OPTIONS, "--dask=local", "--jobs=2", "run", expected=255)

    assert "--dask needs Dask's scheduler: pip install distributed" in done.stderr
