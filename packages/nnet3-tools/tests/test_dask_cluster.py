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
from nnet3_descriptors import parse_config, write_nnet
from nnet3_tables import MatrixWriter

pytest.importorskip("distributed")

CONFIG = """
input-node name=input dim=4
component name=hidden type=NaturalGradientAffineComponent input-dim=8 output-dim=12 max-change=0.1
component name=relu type=RectifiedLinearComponent dim=12
component name=classes type=NaturalGradientAffineComponent input-dim=12 output-dim=3
component name=log-softmax type=LogSoftmaxComponent dim=3
component-node name=hidden component=hidden input=Append(Offset(input, -1), input)
component-node name=relu component=relu input=hidden
component-node name=classes component=classes input=relu
component-node name=log-softmax component=log-softmax input=classes
output-node name=output input=log-softmax
"""
RECIPE = ("--nnet-config=nnet.config", "--features=ark:cat one.ark two.ark |",
          "--alignments=ark:ali.txt", "--num-jobs-initial=2", "--num-jobs-final=3",
          "--num-epochs=3", "--frames-per-example=10", "--minibatch-size=1:8",
          "--held-out-every=5", "--initial-learning-rate=0.02")  # fmt: skip
SECONDS = 120.0
SOON = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"}
"""The time after which Dask considers a machine dead; by default 30 s."""


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
    write_nnet(parse_config(CONFIG, rng=np.random.default_rng(1)), "final.raw")
    rng = np.random.default_rng(2)
    lines = []
    for name, count in (("one", 70), ("two", 110)):
        with MatrixWriter(f"ark:{name}.ark") as writer:
            for number in range(count):
                features = rng.standard_normal((40, 4), dtype=np.float32)
                writer.write(f"{name}{number}", features)
                classes = " ".join(map(str, features[:, :3].argmax(axis=1)))
                lines.append(f"{name}{number} {classes}\n")
    Path("ali.txt").write_text("".join(lines), encoding="utf-8")
    return work


def program(tool: str, *arguments: str) -> list[str]:
    """The command that runs a tool."""
    text = f"from nnet3_tools.entry_points import {tool.replace('-', '_')} as run\nrun()"
    return [sys.executable, "-c", text, *arguments]


def run(tool: str, *arguments: str) -> str:
    """Runs a tool to its end; returns its log."""
    done = subprocess.run(
        program(tool, *arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **SOON},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_recipe_on_dask(cluster: Cluster) -> None:
    """The network is that of one process, though a worker is killed after the first iteration."""
    run("nnet3-train-recipe", *RECIPE, "alone")
    command = program("nnet3-train-recipe", *RECIPE, f"--dask={cluster.address}", "together")
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **SOON}
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
    done = subprocess.run(
        program("nnet3-compute", "--dask=tcp://127.0.0.1:9", "final.raw", "ark:one.ark", "ark:x"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "300ms"},
    )

    assert done.returncode == 255
    assert "--dask: cannot reach a scheduler at 'tcp://127.0.0.1:9'" in done.stderr
    assert "Traceback" not in done.stderr
