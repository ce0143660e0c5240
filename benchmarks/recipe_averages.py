"""The effect of averaging over jobs, and of the final combination, in the recipe for digits.

    python benchmarks/recipe_averages.py [--seeds 3] [--epochs 16] [--processes 2]

For each seed, which draws the first parameters and the order of examples, two runs see the same
frames equally often: one with one job at a time, one with four. The columns are the objective per
frame on held-out utterances, a fifth of all, with batch-norm in test mode:

- job: the network of a job of the last iteration, as a mean over its jobs;
- average: the average of these networks, the result of the last iteration (for one job: the same);
- combined: the average of the last networks that is best on training and held-out examples, with
  new statistics of batch-norm, the result of the run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from nnet3_descriptors import Nnet, parse_config, read_nnet
from nnet3_training import Evaluator, in_test_mode, minibatches, read_examples
from nnet3_training.recipes import JobRecord, RecipeOptions, TrainingRun, train_recipe
from nnet3_training.workers import Processes

os.environ.setdefault("NNET3_CACHE_DIR", "")  # compiling is timed, too

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
sys.path.insert(0, str(DIGITS))

from train import utterances  # noqa: E402


def objective(nnet: Nnet, examples: Path) -> float:
    """The objective per frame of a network on an archive of examples."""
    evaluator = Evaluator(in_test_mode(nnet, batchnorm=True, dropout=True))
    for minibatch in minibatches(read_examples(examples, nnet), 64):
        evaluator.add(minibatch)
    return evaluator.objectives["output"].per_frame


def measured(folder: Path, jobs: int, seed: int, epochs: float, processes: int) -> dict[str, float]:
    """The objectives of a run."""
    config = (DIGITS / "nnet.config").read_text()
    options = RecipeOptions(
        num_epochs=epochs,
        num_jobs_initial=jobs,
        num_jobs_final=jobs,
        initial_learning_rate=0.001,
        final_learning_rate=0.0001,
        minibatch_size="16",
        frames_per_archive=800,
        held_out_every=5,
        seed=seed,
    )
    held_out = folder / "archives" / "diagnostic.held_out.ark"
    of_jobs: list[float] = []
    seen: list[JobRecord] = []

    def keep(event: object) -> None:
        if isinstance(event, JobRecord):
            run = TrainingRun.read(folder)
            number = len(run.iterations)
            if number == len(run.schedule) - 1:
                path = folder / "jobs" / f"{number}.{len(seen)}.raw"
                of_jobs.append(objective(read_nnet(path), held_out))
                seen.append(event)

    with Processes(processes) as workers:
        run = train_recipe(
            folder,
            parse_config(config, rng=np.random.default_rng(seed)),
            utterances(),
            options,
            workers=workers,
            on_event=keep,
        )
    assert run.final is not None
    return {
        "iterations": float(len(run.iterations)),
        "job": statistics.fmean(of_jobs),
        "average": run.diagnostics[len(run.iterations)].held_out["output"].per_frame,
        "combined": run.final.diagnostics.held_out["output"].per_frame,
        "models": float(run.final.num_models),
    }


def main() -> None:
    """Print a line for each run, and means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=16)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    print("| jobs | seed | iterations | job | average | combined | models |")
    print("|---|---|---|---|---|---|---|")
    for jobs in (1, 4):
        rows = []
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as folder:
                found = measured(
                    Path(folder) / "run", jobs, seed, arguments.epochs, arguments.processes
                )
            rows.append(found)
            print(row(jobs, str(seed), found), flush=True)
        means = {name: statistics.fmean(each[name] for each in rows) for name in rows[0]}
        print(row(jobs, "mean", means), flush=True)


def row(jobs: int, seed: str, found: dict[str, float]) -> str:
    """A line of the table."""
    values = " | ".join(f"{found[name]:.4f}" for name in ("job", "average", "combined"))
    return f"| {jobs} | {seed} | {found['iterations']:.0f} | {values} | {found['models']:.3g} |"


if __name__ == "__main__":
    main()
