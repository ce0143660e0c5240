"""nnet3-chain-fine-tune, from speech, transcripts and a lexicon to a .mdl, without alignments."""

from __future__ import annotations

import functools
import itertools
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import attrs
import numpy as np
import pytest
from kaldi_tables import write_arrays
from nnet3_descriptors import (
    AcousticModel,
    read_acoustic_model,
    read_nnet,
    unvectorize,
    vectorize,
    write_acoustic_model,
)
from nnet3_speech.hmm import read_transitions
from nnet3_tables import read_table
from nnet3_tools.recipes import runs
from nnet3_training.recipes import TrainingRun
from reference_cases import CHAIN_REFERENCE, DIGITS_EXAMPLE
from tool_runs import run_tool
from wav_files import wav

DIGITS = CHAIN_REFERENCE / "digits"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DATA = ("--features=ark:feats.ark", "--text=text", "--lexicon=lexicon.txt")
OPTIONS = ("--num-epochs=2", "--initial-learning-rate=0.0005", "--held-out-every=4",
           "--final-learning-rate=0.0005", "--minibatch-size=1:4")  # fmt: skip
FREEZE = ("--freeze=lda", "--freeze=tdnn1*")


def write_system(path: Path) -> None:
    """Writes a model in its folder, features, transcripts and a lexicon."""
    model = path / "model"
    model.mkdir()
    for name in ("tree", "den.fst"):
        shutil.copy(DIGITS / name, model)
    (model / "frame_subsampling_factor").write_text("3\n")
    numbered = {
        f"{word}{place}": 2 + 3 * number + place
        for number, word in enumerate(WORDS)
        for place in range(3)
    }
    symbols = {"<eps>": 0, "SIL": 1, **numbered}
    (model / "phones.txt").write_text("".join(f"{name} {n}\n" for name, n in symbols.items()))
    acoustic = AcousticModel(
        transition_model=read_transitions(DIGITS / "0.trans_mdl").model,
        nnet=read_nnet(DIGITS / "train.m0.9.raw"),
        left_context=8,
        right_context=8,
        priors=np.full(62, 1 / 62),
    )
    write_acoustic_model(acoustic, model / "final.mdl")
    (path / "lexicon.txt").write_text("".join(f"{w} {w}0 {w}1 {w}2\n" for w in WORDS))
    entries = dict(itertools.islice(read_table(f"ark:{DIGITS_EXAMPLE}/test.feats.ark"), 12))
    write_arrays(f"ark:{path}/feats.ark", entries)
    (path / "text").write_text("".join(f"{key} {key.rpartition('-')[2]}\n" for key in entries))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with such a system."""
    monkeypatch.chdir(tmp_path)
    write_system(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompletedProcess[str]]:
    """The folder of a system with a run in one go, and what the tool said."""
    path = tmp_path_factory.mktemp("whole")
    write_system(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        done = fine_tune(*DATA, *OPTIONS, *FREEZE, "--report=page.html", "model", "run")
    return path, done


fine_tune = functools.partial(run_tool, "nnet3-chain-fine-tune", expected=0)


def held_out(run: str) -> list[float]:
    """The objective on held-out utterances of each network of a run, and of its result."""
    found = TrainingRun.read(run)
    last = found.final.diagnostics
    each = [*(known for _, known in sorted(found.diagnostics.items())), last]
    return [known.held_out["output"].per_frame for known in each]


def test_fine_tunes(
    whole: tuple[Path, CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out utterances rise; the .mdl differs in its parameters only, frozen ones excepted."""
    folder, done = whole
    monkeypatch.chdir(folder)

    assert "LOG (nnet3-chain-fine-tune) 12 utterances, 9 examples in 1 archives;" in done.stderr
    assert done.stderr.endswith("Wrote model to run/final.mdl\n")
    first, second, third, final = held_out("run")
    assert first < second < third == final
    assert f"held-out before it {second:.6g}, " in done.stderr
    before, after = (read_acoustic_model(Path(name, "final.mdl")) for name in ("model", "run"))
    for name in ("lda", "tdnn1.affine", "output.affine"):
        mine, theirs = (model.nnet.component(name).linear_params for model in (after, before))
        assert np.array_equal(mine, theirs) == (name != "output.affine")
    restored = attrs.evolve(after, nnet=unvectorize(after.nnet, vectorize(before.nnet)))
    write_acoustic_model(restored, "restored.mdl")
    assert Path("restored.mdl").read_bytes() == Path("model", "final.mdl").read_bytes()
    page = (folder / "page.html").read_text()
    assert "--freeze" in page
    assert "Objective of output, per frame" in page


def test_interruption(
    whole: tuple[Path, CompletedProcess[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between iterations and within one: MODEL and DIR alone continue, to the same bytes."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_report", stop)
        options = *OPTIONS, *FREEZE, "--report=page.html"
        fine_tune(*DATA, *options, "model", "part", expected=130)
    with monkeypatch.context() as patch:
        patch.setattr(runs.Bar, "advance", stop)  # a job is done, its iteration is not
        within = fine_tune("model", "part", expected=130)
    assert "1 of 2 iterations are done" in within.stderr
    fine_tune("model", "part")

    for name in ("final.mdl", "final.raw"):
        assert Path("part", name).read_bytes() == (whole[0] / "run" / name).read_bytes()
    refused = fine_tune("--num-epochs=3", "model", "part", expected=255)
    assert "part: the run there has num_epochs = 2.0, expected 3.0" in refused.stderr


def test_a_result_that_was_changed(whole: tuple[Path, CompletedProcess[str]], folder: Path) -> None:
    """The same command leaves final.mdl as it is, if that is a model; another file it replaces."""
    shutil.copytree(whole[0] / "run", "run")
    result = Path("run", "final.mdl")
    first, changed = result.read_bytes(), Path("model", "final.mdl").read_bytes()
    for found, expected in ((changed, changed), (first[:-9], first)):
        result.write_bytes(found)
        done = fine_tune(*DATA, *OPTIONS, *FREEZE, "model", "run")
        assert "WARNING (nnet3-chain-fine-tune) the run in 'run' has its examples" in done.stderr
        assert result.read_bytes() == expected


def test_a_corrected_command(whole: tuple[Path, CompletedProcess[str]], folder: Path) -> None:
    """A mistaken command does not take the folder: the right one runs there as in a new one."""
    first, *_ = (folder / "text").read_text().splitlines()
    (folder / "fewer").write_text(f"{first}\n")

    wrong = fine_tune(*DATA, *OPTIONS, "--text=fewer", "model", "run", expected=255)
    assert "expected at least 4 utterances" in wrong.stderr
    fine_tune(*DATA, *OPTIONS, *FREEZE, "model", "run")

    finals = [path.joinpath("run", "final.mdl").read_bytes() for path in (folder, whole[0])]
    assert finals[0] == finals[1]


def test_denominator_of_the_text(folder: Path) -> None:
    """Without den.fst the denominator is made of the phones of the text, once for a run."""
    Path("model", "den.fst").unlink()

    done = fine_tune(*DATA, *OPTIONS, "model", "run")

    assert "No den.fst is given: the denominator is made of the phones of --text" in done.stderr
    assert Path("run", "den.fst").exists()
    first, *_, final = held_out("run")
    assert first < final
    again = fine_tune(*DATA, *OPTIONS, "model", "run")
    assert "the denominator is made" not in again.stderr


def test_utterances_that_cannot_be_used(folder: Path) -> None:
    """Utterances without transcript, without words, or too short for theirs are left out, named."""
    first, second, third, *lines = (folder / "text").read_text().splitlines()
    key, long = third.split()[0], " ".join([*WORDS] * 3)
    (folder / "text").write_text("\n".join([second.split()[0], f"{key} {long}", *lines]) + "\n")

    done = fine_tune(*DATA, "--num-epochs=1", "--held-out-every=4", "model", "run")

    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 4
    assert warnings[0].endswith(f"No transcript for utterance {first.split()[0]}")
    assert warnings[1].endswith(f"utterance '{second.split()[0]}': expected words, found none")
    assert f"utterance '{key}': there are too many phones for too few frames" in warnings[2]
    assert warnings[3].endswith("3 utterances had errors and could not be processed.")
    assert TrainingRun.read("run").archives.utterances == 9


def test_recordings(folder: Path) -> None:
    """WAV files in place of features: those that the options in the model's folder make."""
    rng = np.random.default_rng(3)
    Path("model", "conf").mkdir()
    (folder / "model" / "conf" / "fbank.conf").write_text("--num-mel-bins=23\n--dither=0\n")
    keys = [line.split()[0] for line in (folder / "text").read_text().splitlines()]
    for key in keys:
        samples = (3000 * rng.standard_normal(16000)).astype("<i2")
        Path(f"{key}.wav").write_bytes(wav(samples.tobytes()))
    (folder / "wav.scp").write_text("".join(f"{key} {key}.wav\n" for key in keys))

    Path("slow.wav").write_bytes(wav(samples.tobytes(), rate=8000))
    with Path("wav.scp").open("a", encoding="utf-8") as scp:
        scp.write("slow slow.wav\n")

    options = "--features=scp:wav.scp", *DATA[1:], "--num-epochs=1", "--held-out-every=4"
    done = fine_tune(*options, "model", "run")

    assert TrainingRun.read("run").archives.utterances == 12
    assert "utterance 'slow': the recording has 8000 samples in a second" in done.stderr


def test_examples(folder: Path) -> None:
    """Examples with alignments will do, too; then a .raw file, whose result is one."""
    fine_tune(
        f"--egs=ark:{DIGITS}/cegs8.ark", *OPTIONS, "--held-out-every=2",
        f"--den-fst={DIGITS}/den.fst", DIGITS / "train.m0.9.raw", "run",
    )  # fmt: skip

    assert not Path("run", "final.mdl").exists()
    first, *_, final = held_out("run")
    assert first < final
