"""The recipe trains chain models: the digits system of the reference, from features or examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from kaldi_tables import read_by_key
from nnet3_descriptors import Nnet, read_nnet
from nnet3_tables import read_table
from nnet3_training import ChainOptions, RecipeError, Utterance, read_chain_examples, read_fst
from nnet3_training.chain import read_supervision
from nnet3_training.recipes import RecipeOptions, TrainingRun, train_recipe
from nnet3_training.workers import Processes
from tool_runs import run_tool

DIGITS = Path(__file__).parent / "reference" / "chain" / "digits"
FEATURES = Path(__file__).parents[1] / "examples" / "digits" / "train60.feats.ark"
OPTIONS = RecipeOptions(
    num_epochs=2,
    num_jobs_initial=1,
    num_jobs_final=2,
    initial_learning_rate=0.002,
    final_learning_rate=0.0005,
    minibatch_size="16",
    frames_per_example=(30,),
    frames_per_archive=800,
    held_out_every=10,
    frame_subsampling_factor=3,
    chain=ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.00005, xent_regularize=0.1),
)


def network() -> Nnet:
    """The network that the reference begins with."""
    return read_nnet(DIGITS / "initial.raw")


def utterances() -> Iterator[Utterance]:
    """The utterances of the reference."""
    known = read_by_key(DIGITS / "sup.ark", read_supervision)
    for key, features in read_table(f"ark:{FEATURES}"):
        yield Utterance(key=key, features=features, supervision=known[key])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """A run of two processes."""
    folder = tmp_path_factory.mktemp("chain")
    with Processes(2) as workers:
        return train_recipe(
            folder, network(), utterances(), OPTIONS, den_fst=DIGITS / "den.fst", workers=workers
        )


def test_it_learns(done: TrainingRun) -> None:
    """LF-MMI and cross-entropy rise on held-out examples; several models were compared."""
    first, last = done.diagnostics[0].held_out, done.final.diagnostics.held_out

    assert sorted(last) == ["output", "output-xent"]
    assert first["output"].per_frame < -0.8
    assert last["output"].per_frame > -0.5
    assert last["output-xent"].per_frame > first["output-xent"].per_frame + 0.3
    assert last["output"].accuracy is None
    assert len(done.final.objectives) > 1
    assert {len(iteration.archives) for iteration in done.schedule} == {1, 2}


def test_examples_have_context_for_moved_inputs(done: TrainingRun) -> None:
    """One frame more on each side than the network needs."""
    example = next(read_chain_examples(done.folder / "archives" / "train.0.ark"))

    assert example.inputs[0].indexes[[0, -1], 1].tolist() == [-5, 34]
    assert example.outputs[0].indexes[:, 1].tolist() == list(range(0, 30, 3))


def test_resumption(done: TrainingRun, tmp_path: Path) -> None:
    """Broken off, and continued by one process from the folder alone, it ends in the same bytes."""

    def stop(event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_recipe(
            tmp_path, network(), utterances(), OPTIONS, den_fst=DIGITS / "den.fst", on_event=stop
        )
    run = train_recipe(tmp_path)

    assert (run.folder / "final.raw").read_bytes() == (done.folder / "final.raw").read_bytes()


def test_kaldis_examples(tmp_path: Path) -> None:
    """Examples that are made already are trained on."""
    options = attrs.evolve(OPTIONS, num_epochs=1, frames_per_archive=5000)
    examples = list(read_chain_examples(DIGITS / "cegs.ark"))

    run = train_recipe(tmp_path / "run", network(), examples, options, den_fst=DIGITS / "den.fst")

    assert run.archives.utterances == 60
    assert run.final.diagnostics.held_out["output"].per_frame > -1.0


def test_mistakes(done: TrainingRun) -> None:
    """A run keeps its denominator, and the options of its objective."""
    den_fst = read_fst(DIGITS / "den.fst")
    with pytest.raises(RecipeError, match="the run there has another denominator"):
        train_recipe(done.folder, den_fst=attrs.evolve(den_fst, costs=den_fst.costs + 1))
    with pytest.raises(RecipeError, match="the run there is of a chain model; give another folder"):
        train_recipe(done.folder, options=RecipeOptions())
    other = attrs.evolve(OPTIONS, chain=ChainOptions(leaky_hmm_coefficient=0.2))
    with pytest.raises(RecipeError, match=r"has leaky_hmm_coefficient = 0\.1, expected 0\.2"):
        train_recipe(done.folder, options=other)


def test_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool does the same from tables, and its page shows both outputs."""
    options = {name: value for name, value in OPTIONS.values.items() if value is not None}
    changed = ("num_epochs", "initial_learning_rate", "final_learning_rate", "minibatch_size",
               "held_out_every", "frame_subsampling_factor", "leaky_hmm_coefficient",
               "l2_regularize", "xent_regularize")  # fmt: skip
    monkeypatch.chdir(tmp_path)

    run_tool(
        "nnet3-train-recipe", f"--nnet={DIGITS}/initial.raw", f"--features=ark:{FEATURES}",
        f"--supervisions=ark:{DIGITS}/sup.ark", f"--den-fst={DIGITS}/den.fst",
        "--frames-per-example=30", *(f"--{name.replace('_', '-')}={options[name]}"
        for name in changed), "--num-epochs=1", "--report=page.html", "run", expected=0,
    )  # fmt: skip

    run = TrainingRun.read(tmp_path / "run")
    assert run.options == attrs.evolve(
        OPTIONS, num_epochs=1.0, num_jobs_final=1, frames_per_archive=400_000
    )
    assert run.final.diagnostics.held_out["output"].per_frame > -1.0
    page = (tmp_path / "page.html").read_text()
    assert "Objective of output-xent, per frame" in page
    assert "leaky-hmm-coefficient" in page  # as on the command line
