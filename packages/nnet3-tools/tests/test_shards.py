"""Tables of features computed in shards by several processes."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import subprocess
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from nnet3_descriptors import write_nnet
from nnet3_tables import MatrixWriter, read_matrices, read_table
from nnet3_tools.compute import utterances
from nnet3_tools.progress import Progress
from nnet3_training import ExampleInput, ExampleOutput, TrainingExample, write_examples
from nnet3_training.workers import Processes
from small_networks import network, stacked
from tool_runs import program, run_tool

CONFIG = stacked(
    4,
    "affine Affine input-dim=12 output-dim=3",
    splice="Append(Offset(input, -1), input, Offset(input, 2))",
)
NUM_UTTERANCES = 70
"""Frames for more than two shards."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a network and features, one of which has NaNs."""
    monkeypatch.chdir(tmp_path)
    write_nnet(network(CONFIG, seed=1), "final.raw")
    rng = np.random.default_rng(2)
    with MatrixWriter("ark:feats.ark") as writer:
        for number in range(NUM_UTTERANCES):
            frames = rng.standard_normal((int(rng.integers(1, 90)), 4), dtype=np.float32)
            if number == 40:
                frames[0, 0] = np.nan
            writer.write(f"u{number}", frames)
    return tmp_path


def compute(*arguments: str) -> CompletedProcess[str]:
    """Runs nnet3-compute within this process; some utterances fail."""
    return run_tool("nnet3-compute", *arguments, expected=255)


def assert_same_tables(one: str, other: str) -> list[str]:
    """Asserts that two tables are the same up to rounding; returns their keys."""
    found, wanted = (dict(read_table(f"ark:{name}")) for name in (one, other))
    assert list(found) == list(wanted)
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-5, atol=1e-5)
    return list(found)


XVECTOR = stacked(
    4,
    "stats StatisticsExtraction input-dim=4 include-variance=false",
    "pool StatisticsPooling input-dim=5 left-context=500 right-context=500",
    "affine Affine input-dim=4 output-dim=3",
).replace("input=pool\n", "input=Round(pool, 1)\n")


def write_egs() -> None:
    """Writes 70 examples."""
    rng = np.random.default_rng(3)
    labels = ExampleOutput.from_labels("output", [[0, 1, 2, 0]], 3)
    write_examples(
        [
            TrainingExample(
                key=f"e{number}",
                inputs=[ExampleInput.from_sequences("input", [rng.random((7, 4))], t_start=-1)],
                outputs=[labels],
            )
            for number in range(70)
        ],
        "egs.ark",
    )


@pytest.mark.any_versions
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("nnet3-compute", ["final.raw", "ark:feats.ark"]),
        (
            "nnet3-xvector-compute",
            ["--min-chunk-size=5", "--output=pool", "pool.raw", "ark:feats.ark"],
        ),
        ("nnet3-compute-from-egs", ["final.raw", "ark:egs.ark"]),
    ],
)
def test_numbers_of_processes(tool: str, arguments: list[str]) -> None:
    """The table is the same for any number of workers; failed utterances are named and left out."""
    write_nnet(network(XVECTOR, seed=1), "pool.raw")
    write_egs()
    of_examples = "ark:egs.ark" in arguments
    status = 0 if of_examples else 255
    for jobs in ("0", "1", "3"):
        done = run_tool(tool, f"--jobs={jobs}", *arguments, f"ark:{jobs}.ark", expected=status)
        assert ("utterance 'u40': " in done.stderr) != of_examples
        done_and_failed = f"Done {NUM_UTTERANCES - 1} utterances, failed for 1"
        assert ("Processed 70 examples." if of_examples else done_and_failed) in done.stderr

    assert Path("3.ark").read_bytes() == Path("1.ark").read_bytes()
    of_utterances = [f"u{n}" for n in range(NUM_UTTERANCES) if n != 40]
    wanted = [f"e{n}" for n in range(70)] if of_examples else of_utterances
    assert assert_same_tables("3.ark", "0.ark") == wanted


@pytest.mark.any_versions
def test_a_process_that_is_killed() -> None:
    """The shard of a killed process is computed by another, and nothing is missing."""
    written = {}
    for name in ("whole", "killed"):
        with Processes(2) as workers:

            def ivectors(key: str, name: str = name, workers: Processes = workers) -> tuple:
                if key == f"u{NUM_UTTERANCES - 1}" and name == "killed":
                    for process_id in workers.process_ids:
                        os.kill(process_id, signal.SIGKILL)
                return None, None

            progress = Progress("nnet3-compute")
            utterances.compute_in_shards(
                (os.path.abspath("final.raw"), 0, "output"),
                read_matrices("ark:feats.ark"),
                functools.partial(MatrixWriter, f"ark:{name}.ark"),
                ivectors,
                functools.partial(utterances.outputs_of, options={}),
                progress,
                workers,
            )
            assert (progress.done, progress.failed) == (NUM_UTTERANCES - 1, 1)
        written[name] = Path(f"{name}.ark").read_bytes()

    assert written["killed"] == written["whole"]


def test_dask() -> None:
    """A cluster gives the same table; without Dask, an error says what to install."""
    if importlib.util.find_spec("distributed") is None:
        done = compute("--dask=local", "final.raw", "ark:feats.ark", "ark:dask.ark")
        assert "--dask needs Dask's scheduler: pip install distributed" in done.stderr
        return
    arguments = "--dask=local", "--jobs=2", "final.raw", "ark:feats.ark", "ark:dask.ark"
    subprocess.run(program("nnet3-compute", *arguments), check=False)
    compute("--jobs=1", "final.raw", "ark:feats.ark", "ark:1.ark")
    assert Path("dask.ark").read_bytes() == Path("1.ark").read_bytes()
