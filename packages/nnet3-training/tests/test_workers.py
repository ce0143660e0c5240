"""Workers: results are complete, in order, and the same for all kinds."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for processes, which import by name

import worker_tasks
from nnet3_runtime_cuda.cpu import choices, products
from nnet3_training import WorkerError
from nnet3_training.workers import DaskWorkers, InProcess, Processes, Workers


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    """A client of a Dask cluster on this machine, which all tests of this file share.

    Of five workers the tests kill four, so that no test waits for new ones.
    """
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=5, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["this process", "1", "2", "4", "dask"])
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """This process, several processes, and a Dask cluster if Dask is installed."""
    if request.param == "this process":
        yield InProcess()
    elif request.param == "dask":
        yield DaskWorkers(request.getfixturevalue("dask_client"))
    else:
        with Processes(int(request.param)) as processes:
            yield processes


def test_results_are_the_same(workers: Workers) -> None:
    """With any workers, results are in the order of the tasks, with the same bytes."""
    assert list(workers.map(worker_tasks.squared, range(20))) == [n * n for n in range(20)]
    wanted = list(InProcess().map(worker_tasks.products, range(5)))
    assert list(workers.map(worker_tasks.products, range(5))) == wanted
    assert list(workers.map(worker_tasks.squared, [])) == []


@pytest.mark.any_versions
def test_tasks_without_end(workers: Workers) -> None:
    """Tasks are taken when they are needed; the work stops when the caller stops asking."""
    found = workers.map(worker_tasks.squared, itertools.count())

    assert list(itertools.islice(found, 3)) == [0, 1, 4]
    found.close()
    assert list(workers.map(worker_tasks.squared, [7])) == [49]


@pytest.mark.any_versions
def test_errors(workers: Workers) -> None:
    """The error of a task comes in its turn, and the workers can still be used."""
    found = workers.map(worker_tasks.refused, range(9))

    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="not 3"):
        next(found)
    assert list(workers.map(worker_tasks.refused, [1])) == [1]


@pytest.mark.any_versions
@pytest.mark.parametrize("workers", ["1", "2", "dask"], indirect=True)
def test_a_worker_that_dies(workers: Workers, tmp_path: Path) -> None:
    """A dead worker is replaced, and its task is done again."""
    markers = [str(tmp_path / str(number)) for number in range(2)]

    assert list(workers.map(worker_tasks.killed_once, markers)) == markers


@pytest.mark.any_versions
@pytest.mark.parametrize("workers", ["2", "dask"], indirect=True)
def test_a_task_that_kills(workers: Workers) -> None:
    """A task that kills one process after another is named, with its arguments."""
    named = r"the same task, .*: killed\('this one'\)"
    with pytest.raises(WorkerError, match=rf"died at ({named}|a task)"):
        list(workers.map(worker_tasks.killed, ["this one"]))


@pytest.mark.any_versions
def test_fewer_processes_than_before() -> None:
    """The number of processes may become smaller while tasks are at work."""
    with Processes(3) as processes:
        found = processes.map(worker_tasks.squared, range(12))
        first = next(found)
        processes.count = 1
        assert [first, *found] == [number**2 for number in range(12)]


@pytest.mark.any_versions
@pytest.mark.parametrize("ends", [Processes.close, lambda each: list(each.map(abs, [-1, 2, -3]))])
def test_results_of_tasks_that_were_ended(ends: Callable[[Processes], object]) -> None:
    """Other tasks, or the end of the processes, end tasks that are at work; asking says so."""
    with Processes(2) as processes:
        found = processes.map(worker_tasks.squared, range(9))
        assert next(found) == 0
        assert ends(processes) in (None, [1, 2, 3])
        with pytest.raises(WorkerError, match="were closed, or got other tasks, before"):
            next(found)
        assert list(processes.map(worker_tasks.squared, [3])) == [9]


@pytest.mark.any_versions
def test_idle_processes_that_die() -> None:
    """Processes that die while idle are replaced, too."""
    with Processes(2) as processes:
        list(processes.map(worker_tasks.squared, range(4)))
        for process_id in processes.process_ids:
            os.kill(process_id, signal.SIGKILL)
        assert list(processes.map(worker_tasks.squared, range(4))) == [0, 1, 4, 9]


_AT_WORK = """
import worker_tasks
from nnet3_training.workers import Processes

if __name__ == "__main__":
    with Processes(2) as processes:
        list(processes.map(worker_tasks.announced, range(2)))
"""


@pytest.mark.any_versions
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_asks(how: signal.Signals, tmp_path: Path) -> None:
    """If the process that started them is killed, workers end at once, whatever they do."""
    script = tmp_path / "script.py"
    script.write_text(_AT_WORK)
    asking = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert asking.stdout is not None
        assert [asking.stdout.readline() for _ in range(2)] == ["at work\n"] * 2
    finally:
        asking.send_signal(how)

    # The output ends when nobody can write to it any more: these processes can, too.
    asking.communicate(timeout=60)


@pytest.mark.parametrize("in_panels", [False, True])
def test_processes_compute_in_one_way(in_panels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trial has found in this process holds in all of them."""
    monkeypatch.setattr(products, "panels_are_faster", lambda: in_panels)
    with Processes(2) as processes:
        found = list(processes.map(worker_tasks.chosen, range(4)))

    assert found == [choices()] * 4
    assert choices()["NNET3_PANELS"] == str(int(in_panels))


def test_results_that_cannot_be_sent() -> None:
    """A result that cannot be sent is an error that says so."""
    with Processes(1) as processes, pytest.raises(WorkerError, match="a result cannot be sent"):
        list(processes.map(worker_tasks.not_to_be_sent, [0]))
