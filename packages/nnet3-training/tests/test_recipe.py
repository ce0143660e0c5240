"""Runs of training from scratch: schedule, archives, resumption, and the same bytes for all."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import attrs
import numpy as np
import pytest
import small_networks
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors import ModelFileError, Nnet, read_nnet, set_test_mode, vectorize
from nnet3_descriptors.editing import weighted_sum
from nnet3_training import (
    DenseTargets,
    Evaluator,
    RecipeError,
    TrainerOptions,
    TrainingExample,
    minibatches,
    read_examples,
    write_examples,
)
from nnet3_training.egs import Utterance, posteriors
from nnet3_training.recipes import (
    ArchivesRecord,
    Figure,
    FinalRecord,
    IterationRecord,
    JobRecord,
    RecipeOptions,
    TrainingRun,
    run_folder,
    run_tasks,
    schedule,
    train_recipe,
)
from nnet3_training.recipes.archives import utterance_name
from nnet3_training.recipes.run_folder import diverged_jobs, read_record
from nnet3_training.workers import Processes, Workers
from small_networks import stacked

LAYERS = (
    "hidden NaturalGradientAffine input-dim=8 output-dim=12 max-change=0.3",
    "relu RectifiedLinear dim=12",
    "norm BatchNorm dim=12",
    "classes NaturalGradientAffine input-dim=12 output-dim=3",
    "log-softmax LogSoftmax dim=3",
)
SPLICE = "Append(Offset(input, -1), input)"
OPTIONS = RecipeOptions(
    num_epochs=3,
    num_jobs_initial=1,
    num_jobs_final=3,
    initial_learning_rate=0.02,
    final_learning_rate=0.005,
    minibatch_size="1:8",
    frames_per_example=(10,),
    frames_per_archive=150,
    shuffle_buffer_size=6,
    held_out_every=5,
    diagnostic_examples=12,
)


def network(seed: int = 1) -> Nnet:
    """A network that can learn the classes of the utterances."""
    return small_networks.network(stacked(4, *LAYERS, splice=SPLICE), seed)


def utterances(count: int = 20) -> Iterator[Utterance]:
    """Utterances of noise, in which the largest of three columns is the class."""
    rng = np.random.default_rng(2)
    for number in range(count):
        features = rng.standard_normal((int(rng.integers(20, 60)), 4), dtype=np.float32)
        labels = features[:, :3].argmax(axis=1)
        yield Utterance(
            key=f"u{number}",
            features=features,
            supervision=posteriors([[(int(label), 1.0)] for label in labels], 3),
        )


@pytest.fixture(scope="module")
def events() -> list[object]:
    """The events of the run `done`."""
    return []


@pytest.fixture(scope="module")
def done(events: list[object], tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """An uninterrupted run in this process."""
    return started(tmp_path_factory.mktemp("run"), on_event=events.append)


@pytest.mark.any_versions
def test_options_of_numpy(tmp_path: Path) -> None:
    """Numbers and switches of NumPy are those of Python in options, and so can be stored."""
    options = attrs.evolve(
        OPTIONS,
        momentum=np.float32(0.5),
        compress=np.True_,
        frames_per_example=np.int64(10),
        final_learning_rate=np.float64(0.005),
    )

    run_folder.write_record(run_folder.RunRecord(options=options), tmp_path / "recipe.json")

    assert options == attrs.evolve(OPTIONS, momentum=0.5)
    assert run_folder.read_run_record(tmp_path / "recipe.json").options == options
    assert TrainerOptions(natural_gradient=np.False_).natural_gradient is False


def started(folder: Path, **more: Any) -> TrainingRun:
    """A run of training in a folder, or what goes on there."""
    return train_recipe(folder, network(), utterances(), OPTIONS, **more)


def interruption(kind: type = object, nth: int = 1) -> Callable[[object], None]:
    """What interrupts a run at the n-th event of a kind."""
    numbers = itertools.count(1)

    def stop(event: object) -> None:
        if isinstance(event, kind) and next(numbers) == nth:
            raise KeyboardInterrupt

    return stop


def final_bytes(run: TrainingRun) -> bytes:
    """The bytes of a run's final network."""
    return (run.folder / "final.raw").read_bytes()


# ---- the schedule ----


@settings(max_examples=3 * settings.default.max_examples // 5)
@given(
    epochs=st.floats(0.1, 20),
    first=st.integers(1, 6),
    last=st.integers(1, 6),
    more=st.integers(0, 20),
    rates=st.sampled_from([(0.001, 0.0001), (1e300, 1e-300)]),
)
def test_schedules(
    epochs: float, first: int, last: int, more: int, rates: tuple[float, float]
) -> None:
    """Archives are used in turn, as often as requested; jobs increase evenly, and rates fall."""
    options = RecipeOptions(
        num_epochs=epochs,
        num_jobs_initial=first,
        num_jobs_final=last,
        initial_learning_rate=rates[0],
        final_learning_rate=rates[1],
    )
    archives = max(first, last) + more

    iterations = schedule(options, archives)

    used = [archive for iteration in iterations for archive in iteration.archives]
    assert used == [n % archives for n in range(math.ceil(epochs * archives))]
    counts = [len(iteration.archives) for iteration in iterations[:-1]]
    assert counts == sorted(counts, reverse=first > last)
    assert all(min(first, last) <= count <= max(first, last) for count in counts)
    used_rates = [iteration.learning_rate for iteration in iterations]
    assert used_rates[0] == rates[0]
    assert used_rates == sorted(used_rates, reverse=True)
    assert used_rates[-1] > rates[1]


# ---- the course of a run ----


def test_run(done: TrainingRun) -> None:
    """A run improves on held-out examples, too, and records its iterations."""
    before, after = (
        done.diagnostics[0].held_out["output"],
        done.final.diagnostics.held_out["output"],
    )

    assert after.per_frame > before.per_frame + 0.2
    assert after.accuracy > 0.7 > before.accuracy
    assert [len(record.jobs) for record in done.iterations] == [
        len(iteration.archives) for iteration in done.schedule
    ]
    assert sorted(done.diagnostics) == list(range(len(done.schedule) + 1))
    # Frames in two chunks weigh one half in each.
    assert 0.9 * done.num_frames < sum(job.frames for each in done.iterations for job in each.jobs)
    last = done.iterations[-1]
    assert last.changes.keys() == {"hidden", "classes"}
    assert all(0.0 < change < 1.0 for change in last.changes.values())
    assert last.saturation.keys() == {"relu"}
    assert last.jobs[0].clipped.keys() >= {""}


def test_examples_are_dealt_out(done: TrainingRun) -> None:
    """Each example is in one archive; those of every fifth utterance are in none."""
    archives = done.archives
    folder = done.folder / "archives"
    keys = [
        [example.key for example in read_examples(folder / f"train.{number}.ark")]
        for number in range(len(archives.frames))
    ]

    assert [len(each) for each in keys] == list(archives.examples)
    assert [10 * len(each) for each in keys] == list(archives.frames)
    assert max(map(len, keys)) - min(map(len, keys)) <= 1
    together = [key for each in keys for key in each]
    assert len(set(together)) == len(together)
    held_out = {f"u{number}" for number in range(20) if number % 5 == 4}
    assert {key.partition("-")[0] for key in together} == {f"u{n}" for n in range(20)} - held_out
    for name, wanted in (("train", set(together)), ("held_out", None)):
        found = [example.key for example in read_examples(folder / f"diagnostic.{name}.ark")]
        assert len(found) == 12
        if wanted is None:
            assert {key.partition("-")[0] for key in found} <= held_out
        else:
            assert set(found) <= wanted


def test_examples_in_no_minibatch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning tells how many examples no minibatch has."""
    run = train_recipe(tmp_path, network(), utterances(), attrs.evolve(OPTIONS, minibatch_size="8"))

    assert run.archives is not None
    left = sum(number % 8 for number in run.archives.examples)
    total = sum(run.archives.examples)
    assert f"minibatch_size '8': {left} of {total} examples are in no minibatch" in caplog.text


def test_networks_are_averaged(done: TrainingRun, tmp_path: Path) -> None:
    """The next network is the mean of the networks of the jobs, which started from the last."""
    shutil.copytree(done.folder, tmp_path / "run")
    last = len(done.schedule) - 1
    for name in (f"iterations/{last}.json", f"models/{last + 1}.raw", "final.json", "final.raw"):
        (tmp_path / "run" / name).unlink()
    kept = []

    def keep(event: object) -> None:
        if isinstance(event, JobRecord):
            kept.append(read_nnet(tmp_path / "run" / "jobs" / f"{last}.{len(kept)}.raw"))

    again = train_recipe(tmp_path / "run", on_event=keep)

    assert len(kept) == len(done.schedule[-1].archives) > 1
    average = weighted_sum(kept, [1 / len(kept)] * len(kept))
    np.testing.assert_array_equal(vectorize(read_nnet(again.network(last + 1))), vectorize(average))
    assert final_bytes(again) == final_bytes(done)


def test_combination(done: TrainingRun) -> None:
    """The number of averaged models is the best one of those tried."""
    objectives = done.final.objectives

    assert list(objectives) == list(range(1, len(done.schedule) // 2 + 1))
    assert objectives[done.final.num_models] == max(objectives.values())


def test_diagnostics_are_those_of_the_network(done: TrainingRun) -> None:
    """The recorded figures of the final network are those of an evaluation."""
    evaluator = Evaluator(set_test_mode(done.nnet))
    path = done.folder / "archives" / "diagnostic.held_out.ark"
    for minibatch in minibatches(read_examples(path), 5):
        evaluator.add(minibatch)

    found = done.final.diagnostics.held_out["output"]
    assert evaluator.objectives["output"].per_frame == pytest.approx(found.per_frame, rel=1e-4)
    assert evaluator.accuracies["output"].per_frame == pytest.approx(found.accuracy)


def test_events(done: TrainingRun, events: list[object]) -> None:
    """Events come in order: archives, the jobs of each iteration, the end."""
    expected = [ArchivesRecord]
    for record in done.iterations:
        expected += [JobRecord] * len(record.jobs) + [IterationRecord]
    assert [type(event) for event in events] == [*expected, FinalRecord]


# ---- jobs that diverge ----

UNSTABLE = stacked(
    4,
    "hidden Affine input-dim=4 output-dim=12",
    "relu RectifiedLinear dim=12",
    "values Affine input-dim=12 output-dim=3",
    objective="quadratic",
)
UNLIMITED = attrs.evolve(
    OPTIONS,
    num_jobs_initial=2,
    num_jobs_final=3,
    frames_per_archive=300,
    max_param_change=1e30,
    initial_learning_rate=0.003,
)
"""With these the network learns, but not from features that are too large."""


def sums() -> Iterator[Utterance]:
    """Utterances with numbers to be reached."""
    for utterance in utterances():
        values = np.asarray(utterance.features)
        targets = DenseTargets(values=values[:, :3] + values[:, 1:])
        yield attrs.evolve(utterance, supervision=targets)


def train_beside_a_bad_archive(
    folder: Path,
    factor: float,
    workers: Workers | None = None,
    options: RecipeOptions = UNLIMITED,
    on_event: Callable[[object], object] = lambda event: None,
) -> TrainingRun:
    """A run of which archive 1 has features that were multiplied by a factor."""

    def take(event: object) -> None:
        if isinstance(event, ArchivesRecord):
            path = folder / "archives" / "train.1.ark"
            bad = []
            for example in read_examples(path):
                (io,) = example.inputs
                inputs = [attrs.evolve(io, values=np.asarray(io.values) * np.float32(factor))]
                bad.append(attrs.evolve(example, inputs=inputs))
            write_examples(bad, path)
        on_event(event)

    nnet = small_networks.network(UNSTABLE, seed=1)
    return train_recipe(folder, nnet, sums(), options, workers=workers, on_event=take)


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        (1e5, r"minibatch \d: the objective of 'output' is (-inf|nan), after .* diverged, or .*"),
        (5.0, r"the objective at 'output' is -[\d.e+]+ per frame, .*: more than 1 below"),
    ],
)
def test_a_job_that_diverges(factor: float, reason: str, tmp_path: Path) -> None:
    """Averages are of the other jobs; the run says which one they leave out, and goes on."""

    def check_average(event: object) -> None:
        if isinstance(event, IterationRecord):
            jobs = [
                read_nnet(tmp_path / "run" / "jobs" / f"{event.number}.{job}.raw")
                for job in range(len(event.jobs))
                if job not in event.diverged
            ]
            average = weighted_sum(jobs, [1 / len(jobs)] * len(jobs))
            path = tmp_path / "run" / "models" / f"{event.number + 1}.raw"
            np.testing.assert_array_equal(vectorize(read_nnet(path)), vectorize(average))

    run = train_beside_a_bad_archive(tmp_path / "run", factor, on_event=check_average)

    for record, iteration in zip(run.iterations, run.schedule, strict=True):
        expected = [job for job, archive in enumerate(iteration.archives) if archive == 1]
        assert list(record.diverged) == expected
        assert all(re.fullmatch(reason, text) for text in record.diverged.values())
        assert [job.archive for job in record.averaged] == [
            archive for archive in iteration.archives if archive != 1
        ]
    assert sum(len(record.diverged) for record in run.iterations) == UNLIMITED.num_epochs
    objectives = [each.held_out["output"].per_frame for each in run.diagnostics.values()]
    assert objectives[-1] > objectives[0] / 2
    assert ">2 of 3<" in run._repr_html_()
    rows = re.findall(r"<tr><td[^>]*>(\d+)<.*?>([^<]+)</td></tr>", run._repr_html_())
    assert rows == [
        (str(number), f"{each:.4g}") for number, each in enumerate(objectives) if number
    ]


@pytest.mark.any_versions
def test_a_run_with_diverged_jobs_is_resumed(tmp_path: Path) -> None:
    """The network is the same, whoever works, and whenever the run is interrupted."""
    whole = train_beside_a_bad_archive(tmp_path / "whole", 1e5)
    stop = interruption(JobRecord, nth=5)
    with Processes(2) as workers, pytest.raises(KeyboardInterrupt):
        train_beside_a_bad_archive(tmp_path / "part", 1e5, workers, on_event=stop)

    assert final_bytes(train_recipe(tmp_path / "part")) == final_bytes(whole)


def test_which_jobs_diverged() -> None:
    """The objective at 'output' decides, with auxiliary terms; if there is none, all outputs do."""

    def job(failure: str = "", **values: Figure) -> JobRecord:
        return JobRecord(archive=0, frames=9, minibatches=3, seconds=1.0, figures=values,
                         clipped={}, skipped=0, failure=failure)  # fmt: skip

    def figure(value: float, auxiliary: float = 0.0, frames: float = 9.0) -> Figure:
        return Figure(per_frame=value, frames=frames, auxiliary=auxiliary)

    best = job(output=figure(-0.5), other=figure(-9.0))
    as_good = job(output=figure(-1.5), other=figure(-1.0))
    worse, regularized = job(output=figure(-1.6)), job(output=figure(-0.4, auxiliary=-1.5))
    infinite, nothing = job(output=figure(math.nan)), job(output=figure(math.nan, frames=0.0))
    broken = job("why", output=figure(-0.1))

    found = diverged_jobs([best, as_good, worse, regularized, infinite, nothing, broken], 1.0)
    assert list(found) == [2, 3, 4, 6]
    assert found[2] == (
        "the objective at 'output' is -1.6 per frame, that of the best job -0.5: more than 1 below"
    )
    assert found[6] == "why"
    assert list(diverged_jobs([best, worse, infinite], math.inf)) == [2]
    without = [
        job(a=figure(-0.1), b=figure(-5.0)),
        job(a=figure(-5.0), b=figure(-0.1)),
        job(a=figure(-0.2), b=figure(-0.2)),
    ]
    assert list(diverged_jobs(without, 1.0)) == [0, 1]
    assert diverged_jobs([infinite], 1.0).keys() == {0}


# ---- the same bytes ----


@pytest.mark.any_versions
@pytest.mark.parametrize("count", [1, 4])
def test_processes(count: int, done: TrainingRun, tmp_path: Path) -> None:
    """The network is the same, to the last bit, for any number of processes."""
    with Processes(count) as workers:
        run = started(tmp_path, workers=workers)

    assert final_bytes(run) == final_bytes(done)


@pytest.mark.any_versions
def test_a_process_that_is_killed(done: TrainingRun, tmp_path: Path) -> None:
    """The job of a killed process is done again by another."""
    killed = []

    with Processes(2) as workers:

        def kill(event: object) -> None:
            if isinstance(event, IterationRecord) and event.number in (1, 3):
                killed.append(workers.process_ids[0])
                os.kill(killed[-1], signal.SIGKILL)

        run = started(tmp_path, workers=workers, on_event=kill)

    assert len(set(killed)) == 2
    assert final_bytes(run) == final_bytes(done)


RUN = """
import sys
sys.path += sys.argv[2:]
from test_recipe import OPTIONS, network, utterances
from nnet3_training.recipes import train_recipe
print("ready", flush=True)
train_recipe(sys.argv[1], network(), utterances(), OPTIONS)
"""


def test_what_notebooks_show(done: TrainingRun) -> None:
    """In a notebook, a run shows its objectives as curves, its iterations, and its progress."""
    page = done._repr_html_()
    broken_off = attrs.evolve(done, final=None, iterations=done.iterations[:1])

    assert page.count("<svg") == len({name for each in done.diagnostics.values()
                                      for name in each.held_out})  # fmt: skip
    assert page.count("<tr>") == 1 + len(done.iterations)
    assert repr(done).endswith(f"{len(done.iterations)} iterations, ended>")
    assert repr(broken_off).endswith(f"1 iterations, of {len(done.schedule)}>")


@pytest.mark.any_versions
def test_resumption(done: TrainingRun, tmp_path: Path) -> None:
    """A run that is killed at random moments and started again ends with the same bytes.

    RECIPE_KILLS in the environment is the number of kills; by default 3.
    """
    command = [sys.executable, "-c", RUN, str(tmp_path / "run"), *sys.path]
    rng = random.Random(5)
    kills, wanted = 0, int(os.environ.get("RECIPE_KILLS", "3"))
    while kills < wanted:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0.0, 0.5))
            process.kill()
            if process.wait() == 0:  # the run had ended
                assert final_bytes(TrainingRun.read(tmp_path / "run")) == final_bytes(done)
                shutil.rmtree(tmp_path / "run")
        kills += 1
    subprocess.run(command, check=True)

    assert final_bytes(TrainingRun.read(tmp_path / "run")) == final_bytes(done)


@pytest.mark.any_versions
@pytest.mark.parametrize("event", [ArchivesRecord, JobRecord, IterationRecord])
def test_interruptions(event: type, done: TrainingRun, tmp_path: Path) -> None:
    """A run interrupted after each kind of step ends with the same bytes."""
    for nth in (2, 1):
        with contextlib.suppress(KeyboardInterrupt):
            started(tmp_path, on_event=interruption(event, nth))
    run = train_recipe(tmp_path)

    assert final_bytes(run) == final_bytes(done)


def test_a_run_that_has_ended(done: TrainingRun) -> None:
    """A finished run does nothing again, and reads no utterances."""
    before = final_bytes(done)

    run = train_recipe(done.folder, network(), iter(()), OPTIONS, on_event=pytest.fail)

    assert final_bytes(run) == before


@pytest.mark.any_versions
def test_a_result_that_is_damaged(done: TrainingRun, tmp_path: Path) -> None:
    """A network that cannot be read is made again, if the folder still has what it is made of."""
    shutil.copytree(done.folder, tmp_path / "run")
    final = tmp_path / "run" / "final.raw"
    final.write_bytes(b"")
    assert final_bytes(train_recipe(tmp_path / "run")) == final_bytes(done)

    final.unlink()
    shutil.rmtree(tmp_path / "run" / "archives")
    with pytest.raises(ModelFileError, match=r"final\.raw: cannot be read: No such file"):
        train_recipe(tmp_path / "run")


def test_files_of_others(done: TrainingRun, tmp_path: Path) -> None:
    """A run reads and removes only files with names that it makes."""
    with pytest.raises(KeyboardInterrupt):
        started(tmp_path, on_event=interruption(JobRecord))
    names = ("models/best.raw", "models/01.raw", "jobs/my.notes.txt", "jobs/0.0.raw.copy")
    for name in names:
        shutil.copy(tmp_path / "models" / "0.raw", tmp_path / name)
    (tmp_path / "jobs" / ".0.0.raw.12345678.87654321.nnet3-tmp").write_bytes(b"")

    assert final_bytes(train_recipe(tmp_path)) == final_bytes(done)
    assert all((tmp_path / name).exists() for name in names)
    assert len(list((tmp_path / "jobs").iterdir())) == 2


def test_paths_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page about a run may be in its folder, but not in the place of its files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("run/final.raw")
    own = ("run/recipe.json", "run/archives/new.html", f"{tmp_path}/run/./final.mdl", "link")
    assert all(TrainingRun.writes("run", name) for name in own)
    others = ("run/page.html", "final.raw", "other/final.raw", "run")
    assert not any(TrainingRun.writes("run", name) for name in others)


# ---- errors ----


def test_a_run_that_never_began(done: TrainingRun, tmp_path: Path) -> None:
    """Until the first iteration begins, the folder takes other options and another network."""
    wrong = attrs.evolve(OPTIONS, frames_per_example=(500,), seed=99)
    other = network(seed=9)
    with pytest.raises(RecipeError, match="too short for an example"):
        train_recipe(tmp_path, other, utterances(), wrong)
    assert not TrainingRun.read(tmp_path).has_begun
    with pytest.raises(KeyboardInterrupt):  # with its examples made
        train_recipe(tmp_path, other, utterances(), OPTIONS, on_event=interruption())
    with pytest.raises(RecipeError, match=r"are for another network, .* expected utterances to m"):
        train_recipe(tmp_path, network(), None, OPTIONS)
    assert TrainingRun.read(tmp_path).archives is not None
    with pytest.raises(KeyboardInterrupt):  # with those of other utterances
        train_recipe(tmp_path, network(), utterances(12), OPTIONS, on_event=interruption())

    run = started(tmp_path)

    assert run.has_begun
    assert final_bytes(run) == final_bytes(done)


def test_a_run_that_has_begun(tmp_path: Path) -> None:
    """From the first iteration on, a run owns its folder, even if no job has ended."""
    break_off = SimpleNamespace(map=Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        started(tmp_path, workers=break_off)
    with pytest.raises(RecipeError, match=r"the run there has seed = \d+, expected 99"):
        train_recipe(tmp_path, network(), utterances(), attrs.evolve(OPTIONS, seed=99))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_two_in_one_folder(done: TrainingRun, tmp_path: Path) -> None:
    """The second is refused, with any options; the first goes on. One that was killed is none."""
    (tmp_path / "run.lock").write_text("process 1 of 'there'")  # of one that was killed

    def meanwhile(event: object) -> None:
        if isinstance(event, ArchivesRecord | IterationRecord):
            other = attrs.evolve(OPTIONS, seed=9)
            with pytest.raises(RecipeError) as raised:
                train_recipe(tmp_path, network(seed=9), utterances(), other)
            assert str(raised.value) == (
                f"{tmp_path}: expected a folder in which nobody else trains, found process "
                f"{os.getpid()} of '{platform.node()}' at work there; wait for its end, or give "
                "another folder"
            )

    assert final_bytes(started(tmp_path, on_event=meanwhile)) == final_bytes(done)
    assert not (tmp_path / "run.lock").exists()


def test_two_processes_make_the_archives(
    done: TrainingRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that begin one run at once, where there are no locks; the later one says so."""
    monkeypatch.setattr(run_folder, "_lock", lambda path: None)
    options = attrs.evolve(OPTIONS, num_epochs=1)

    def interrupted() -> Iterator[Utterance]:
        for number, utterance in enumerate(utterances()):
            if number == 10:
                train_recipe(tmp_path, network(), utterances(), options)
            yield utterance

    with pytest.raises(RecipeError, match=r"archives' was made meanwhile, by another process"):
        train_recipe(tmp_path, network(), interrupted(), options)

    run = TrainingRun.read(tmp_path)
    assert run.final is not None
    archives = sorted((tmp_path / "archives").iterdir())
    assert [each.name for each in archives] == [
        each.name for each in sorted((done.folder / "archives").iterdir())
    ]
    assert not list(tmp_path.glob(".*"))


def test_a_record_with_many_errors(done: TrainingRun, tmp_path: Path) -> None:
    """Reading ends at the first error; those of a long list would take all memory."""
    record = json.loads((done.folder / "iterations" / "0.json").read_text())
    (tmp_path / "0.json").write_text(json.dumps({**record, "jobs": "x" * 30_000}))

    tracemalloc.start()
    with pytest.raises(RecipeError, match="this is no IterationRecord of a training run: "):
        read_record(IterationRecord, tmp_path / "0.json")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 5_000_000  # bytes


def test_records_of_other_iterations(done: TrainingRun, tmp_path: Path) -> None:
    """The record of an iteration has its number; what other files there are makes no difference."""
    shutil.copytree(done.folder, tmp_path / "run")
    iterations = tmp_path / "run" / "iterations"
    shutil.copy(iterations / "0.json", tmp_path / "run" / "diagnostics" / "others.json")
    assert TrainingRun.read(tmp_path / "run").diagnostics == done.diagnostics

    shutil.copy(iterations / "0.json", iterations / "1.json")
    with pytest.raises(RecipeError, match=r"/1\.json: expected the record of iteration 1, found"):
        TrainingRun.read(tmp_path / "run")


# ---- other objectives, schedules, devices ----


def test_dropout_schedules() -> None:
    """Each iteration has the proportions for its place in the data, by pattern."""
    options = attrs.evolve(OPTIONS, num_jobs_final=1, dropout_schedule="0,0.4@0.5,0 a*=0.1,0.1")

    found = [iteration.dropout for iteration in schedule(options, 2)]

    assert [each["*"] for each in found] == pytest.approx([0, 0.4 / 3, 0.8 / 3, 0.4, 0.8 / 3,
                                                           0.4 / 3])  # fmt: skip
    assert {each["a*"] for each in found} == {0.1}


def test_dropout_is_scheduled(tmp_path: Path) -> None:
    """Jobs train with the proportion of their iteration, which its record has."""
    dropout = "dropout Dropout dim=12 dropout-proportion=0.0"
    config = stacked(4, *LAYERS[:3], dropout, *LAYERS[3:], splice=SPLICE)
    nnet = small_networks.network(config, seed=1)
    options = attrs.evolve(OPTIONS, num_epochs=1, dropout_schedule="0,0.5@0.5,0.1")

    run = train_recipe(tmp_path / "run", nnet, utterances(), options)

    wanted = [each.dropout["*"] for each in run.schedule]
    assert len(set(wanted)) > 1
    assert [record.dropout for record in run.iterations] == [{"*": each} for each in wanted]
    last = read_nnet(run.network(len(wanted)))
    assert last.components[last.component_index("dropout")].dropout_proportion == pytest.approx(
        wanted[-1]
    )


def test_frozen_components(tmp_path: Path) -> None:
    """A frozen matrix stays as it is, also one with an orthonormal constraint, which is kept."""
    factored = "factored Linear input-dim=12 output-dim=12 orthonormal-constraint=-1.0"
    nnet = small_networks.network(stacked(4, *LAYERS[:3], factored, *LAYERS[3:], splice=SPLICE), 1)
    options = attrs.evolve(OPTIONS, num_epochs=1, fine_tuning=True, freeze="f*")

    run = train_recipe(tmp_path, nnet, utterances(), options)

    before, after = (each.component("factored") for each in (nnet, run.nnet))
    assert np.array_equal(before.params, after.params)
    assert after.orthonormal_constraint == -1.0


@pytest.mark.any_versions
def test_dense_targets(tmp_path: Path) -> None:
    """A network learns target values, for which no accuracy is recorded."""
    affine = "out NaturalGradientAffine input-dim=4 output-dim=3 max-change=2"
    nnet = small_networks.network(stacked(4, affine, objective="quadratic"), seed=3)
    options = attrs.evolve(OPTIONS, num_epochs=10, num_jobs_final=2, initial_learning_rate=0.05)

    run = train_recipe(tmp_path, nnet, sums(), options)

    assert run.diagnostics[0].held_out["output"].per_frame < -1.0
    assert run.final.diagnostics.held_out["output"].per_frame > -0.01
    assert run.final.diagnostics.held_out["output"].accuracy is None


def steady() -> Iterator[Utterance]:
    """Utterances of noise that is loudest in the column of the utterance's class."""
    rng = np.random.default_rng(5)
    for number in range(30):
        features = rng.standard_normal((36, 4), dtype=np.float32)
        features[:, number % 3] += 2.0
        known = posteriors([[(number % 3, 1.0)]] * 12, 3)
        yield Utterance(key=f"u{number}", features=features, supervision=known)


@pytest.mark.any_versions
def test_outputs_at_a_third_of_the_frame_rate(tmp_path: Path) -> None:
    """Examples have subsampled outputs and context for shifted inputs; jobs shift them in turn."""
    options = attrs.evolve(
        OPTIONS, frame_subsampling_factor=3, frames_per_example=(12,), frames_per_archive=60
    )

    run = train_recipe(tmp_path, network(), steady(), options)

    example = next(read_examples(run.folder / "archives" / "train.0.ark"))
    assert example.outputs[0].indexes[:, 1].tolist() == [0, 3, 6, 9]
    assert example.inputs[0].indexes[:, 1].tolist() == list(range(-2, 13))
    used = [
        (archive, shift)
        for iteration in run.schedule
        for archive, shift in zip(iteration.archives, iteration.frame_shifts, strict=True)
    ]
    archives = len(run.archives.frames)
    assert sorted(used) == [(archive, shift) for archive in range(archives) for shift in range(3)]
    assert run.final.diagnostics.held_out["output"].accuracy > 0.8


def test_examples_that_are_made_already(done: TrainingRun, tmp_path: Path) -> None:
    """Of ready examples, whole utterances are held out."""
    paths = sorted((done.folder / "archives").glob("train.*.ark"))
    examples = [example for path in paths for example in read_examples(path)]

    run = train_recipe(tmp_path, network(), examples, OPTIONS)

    archives = tmp_path / "archives"
    names = [
        {example.key.partition("-")[0] for path in archives.glob(pattern)
         for example in read_examples(path)}
        for pattern in ("train.*.ark", "diagnostic.held_out.ark")
    ]  # fmt: skip
    assert not names[0] & names[1]
    assert run.archives.utterances == len({example.key.partition("-")[0] for example in examples})
    assert run.final.diagnostics.held_out["output"].accuracy > 0.7


@pytest.mark.parametrize(
    ("key", "name"), [("a-b-0", "a-b"), ("a-b-30-8-30-8-v1", "a-b"), ("alone", "alone")]
)
def test_names_of_utterances(key: str, name: str) -> None:
    """The name of an utterance is the beginning of an example's key."""
    assert utterance_name(TrainingExample(key=key, inputs=[], outputs=[])) == name


def test_devices(done: TrainingRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs take the devices in turn; the evaluation takes the next one."""
    given: list[str] = []

    def recorded(kind: type) -> object:
        def make(nnet: Nnet, *arguments: object, **options: object) -> object:
            rest = [each for each in arguments if isinstance(each, str)]
            given.append(str(options.pop("device", None) or rest[0]))
            return kind(nnet, *(each for each in arguments if each not in rest), **options)

        return make

    monkeypatch.setattr(run_tasks, "Trainer", recorded(run_tasks.Trainer))
    monkeypatch.setattr(run_tasks, "Evaluator", recorded(run_tasks.Evaluator))
    shutil.copytree(done.folder, tmp_path / "run")
    last = len(done.schedule) - 1
    for name in (f"iterations/{last}.json", f"diagnostics/{last}.json", "final.json"):
        (tmp_path / "run" / name).unlink()

    with pytest.raises(KeyboardInterrupt):
        train_recipe(
            tmp_path / "run", devices=("cuda:0", "cuda:1"), on_event=interruption(IterationRecord)
        )

    assert len(done.schedule[-1].archives) == 2
    assert given == ["cuda:0", "cuda:1", "cuda:0", "cuda:0"]  # two sets of examples to evaluate
