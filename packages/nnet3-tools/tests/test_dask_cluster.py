"""A Dask cluster of processes that communicate by TCP; one is killed during the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest
from labelled_features import CONFIG, write_features
from nnet3_descriptors import write_nnet
from small_networks import network
from tool_runs import program

pytest.importorskip("distributed")

RECIPE = ("--nnet-config=nnet.config", "--features=ark:cat one.ark two.ark |",
          "--alignments=ark:ali.txt", "--num-jobs-initial=2", "--num-jobs-final=3",
          "--num-epochs=3", "--frames-per-example=10", "--minibatch-size=1:8",
          "--held-out-every=5", "--initial-learning-rate=0.02")  # fmt: skip
SECONDS = 120.0
CONNECT = "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"


@attrs.frozen
class Cluster:
    """A scheduler, and its workers.

    Attributes:
        address: Address of the scheduler.
        workers: Processes with one thread each; dead ones are not replaced.
    """

    address: str
    workers: tuple[subprocess.Popen[bytes], ...]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler and two workers, in another folder than the tools."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = elsewhere / "scheduler.json"

    def start(module: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard",
                   f"--scheduler-file={file}", *options]  # fmt: skip
        with (elsewhere / f"{module}{len(processes)}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(command, cwd=elsewhere, stdout=log, stderr=subprocess.STDOUT)
            )
        return processes[-1]

    processes: list[subprocess.Popen[bytes]] = []
    try:
        start("dask_scheduler", "--host=127.0.0.1", "--port=0")
        options = ("--nthreads=1", "--no-nanny", f"--local-directory={elsewhere}")
        workers = tuple(start("dask_worker", *options) for _ in range(2))
        until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        address = json.loads(file.read_text())["address"]
        assert address.startswith("tcp://127.0.0.1:")
        yield Cluster(address, workers)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def until(condition: object) -> None:
    """Waits until a function returns a true value."""
    end = time.monotonic() + SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a network, and features in two archives."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    Path("nnet.config").write_text(CONFIG, encoding="utf-8")
    write_nnet(network(CONFIG, seed=1), "final.raw")
    rng = np.random.default_rng(2)
    lines = write_features("one.ark", (f"one{number}" for number in range(70)), rng)
    lines |= write_features("two.ark", (f"two{number}" for number in range(110)), rng)
    Path("ali.txt").write_text("".join(lines.values()), encoding="utf-8")
    return work


def run(tool: str, *arguments: str, status: int = 0, timeout: str = "2s") -> str:
    """Runs a tool to its end; returns its log.

    Dask considers a machine dead after the timeout; by default after 30 s.
    """
    done = subprocess.run(
        program(tool, *arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, CONNECT: timeout},
    )
    assert done.returncode == status, done.stderr
    return done.stderr


def test_recipe_on_dask(cluster: Cluster) -> None:
    """The network is that of one process, though a worker is killed after the first iteration."""
    run("nnet3-train-recipe", *RECIPE, "alone")
    command = program("nnet3-train-recipe", *RECIPE, f"--dask={cluster.address}", "together")
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, CONNECT: "2s"}
    ) as process:
        assert process.stderr is not None
        until(lambda: Path("together/iterations/0.json").exists() or process.poll() is not None)
        cluster.workers[0].kill()
        said = process.stderr.read()

    assert process.returncode == 0, said
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert cluster.workers[1].poll() is None
    assert Path("together/final.raw").read_bytes() == Path("alone/final.raw").read_bytes()


def test_scoring_on_dask(cluster: Cluster) -> None:
    """The table is that of one process, though a worker is killed between two archives."""
    run("nnet3-compute", "--jobs=1", "final.raw", "ark:cat one.ark two.ark |", "ark:alone.ark")
    kill = f"cat one.ark; sleep 2; kill -KILL {cluster.workers[0].pid}; cat two.ark"
    said = run(
        "nnet3-compute", f"--dask={cluster.address}", "final.raw", f"ark:{kill} |", "ark:both.ark"
    )

    assert "Done 180 utterances" in said
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert Path("both.ark").read_bytes() == Path("alone.ark").read_bytes()


def test_no_scheduler_for_dask() -> None:
    """The error says which address does not answer."""
    arguments = "--dask=tcp://127.0.0.1:9", "final.raw", "ark:one.ark", "ark:x"

    said = run("nnet3-compute", *arguments, status=255, timeout="300ms")

    assert "--dask: cannot reach a scheduler at 'tcp://127.0.0.1:9'" in said
    assert "Traceback" not in said
