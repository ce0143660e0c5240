"""The main loop of the tools: utterances, order, reading ahead, interruption; bars, streams."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from nnet3 import UtteranceQueue, Work
from nnet3.batches.queue import READ_AHEAD_FRAMES
from nnet3_runtime_cuda import RunError
from nnet3_tables import MatrixWriter, read_matrices
from nnet3_tools.compute.utterances import compute_all
from nnet3_tools.progress import Bar, Progress
from nnet3_tools.streams import readable


def test_long_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    """A long reason is said in full once; of further ones like it, only both ends are."""
    long = "the first row needs " + ", ".join(f"node{number}" for number in range(99)) + " missing"
    progress = Progress("nnet3-compute")

    for key in "abc":
        progress.fail(key, RunError(f"{key}: {long}"))
    progress.fail("d", RunError("short"))

    first, second, third, last = capsys.readouterr().err.splitlines()
    assert first == f"nnet3-compute: utterance 'a': a: {long}"
    for key, line in (("b", second), ("c", third)):
        assert line.startswith(
            f"nnet3-compute: utterance '{key}': {key}: the first row needs node0"
        )
        assert line.endswith("node98 missing")
        assert len(line) < 250
    assert last == "nnet3-compute: utterance 'd': short"


def nothing() -> None:
    """A task that does nothing."""


def work(tasks: Sequence[Callable[[], object]], result: float = 0.0) -> Work:
    """Work whose result is one number."""
    return Work(tasks=tasks, finish=lambda: np.full((1, 1), result, dtype=np.float32))


@pytest.fixture
def features(tmp_path: Path) -> str:
    """A table of twenty utterances of 1 to 20 frames."""
    table = f"ark:{tmp_path}/features.ark"
    with MatrixWriter(table) as writer:
        for number in range(20):
            writer.write(f"u{number:02}", np.zeros((number + 1, 1), dtype=np.float32))
    return table


def run(features: str, prepare: Callable[[str, np.ndarray], Work], threads: int) -> dict[str, int]:
    """The written results, by utterance."""
    output = features.replace("features", "output")
    compute_all(
        features, lambda: MatrixWriter(output), prepare, Progress("test"), num_threads=threads
    )
    return {key: int(read()[0, 0]) for key, read in read_matrices(output)}


def test_all_threads_share_an_utterance(features: str) -> None:
    """The tasks of one utterance run at the same time, since each waits for another."""
    meeting = threading.Barrier(2)

    def prepare(key: str, frames: np.ndarray) -> Work:
        tasks = 2 * (len(frames) // 2)
        return work([partial(meeting.wait, 10.0)] * tasks, len(frames))

    assert run(features, prepare, 2) == {f"u{number:02}": number + 1 for number in range(20)}


def test_later_utterances_are_computed_meanwhile(features: str) -> None:
    """While a thread works on the first utterance, others continue; results stay in order."""
    last = threading.Event()

    def prepare(key: str, frames: np.ndarray) -> Work:
        tasks = {"u00": partial(last.wait, 10.0), "u19": last.set}
        return work([tasks.get(key, nothing)], len(frames))

    assert list(run(features, prepare, 2)) == [f"u{number:02}" for number in range(20)]
    assert last.is_set()


def test_reads_no_farther_than_needed() -> None:
    """Reading stops when the waiting work is as long for all threads as the oldest for one."""
    gate = threading.Event()
    with UtteranceQueue(2) as queue:
        queue.add("long", 3 * READ_AHEAD_FRAMES, work([partial(gate.wait, 10.0)]))
        ahead = 0
        while not queue.is_full:
            queue.add("short", 1000, work([nothing]))
            ahead += 1000
        assert ahead == 2 * 3 * READ_AHEAD_FRAMES + 1000
        gate.set()
        queue.oldest.result()
        queue.remove_oldest()
        assert queue.is_full  # the oldest is short by now


def test_long_utterances_are_read_one_ahead() -> None:
    """For utterances of many tasks, only the next one is read ahead."""
    with UtteranceQueue(2) as queue:
        for expected in (False, False, True):
            queue.add("long", 10**6, work([nothing] * 1000))
            assert queue.is_full == expected


def test_error_of_a_task(features: str) -> None:
    """An error in the program, not in an utterance, ends the loop."""
    fail = Mock(side_effect=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        run(features, lambda key, frames: work([fail, nothing]), 2)


def test_interruption(features: str) -> None:
    """After an interruption, tasks that no thread has begun are left out."""
    begun = []

    def task() -> None:
        begun.append(1)
        time.sleep(0.01)

    def prepare(key: str, frames: np.ndarray) -> Work:
        if key == "u01":
            raise KeyboardInterrupt
        return work([task] * 1000 if key == "u00" else [])

    with pytest.raises(KeyboardInterrupt):
        run(features, prepare, 1)
    assert len(begun) < 1000


@pytest.mark.skipif(os.name != "posix", reason="makes a terminal as POSIX systems have")
@pytest.mark.parametrize("size", [(0, 0), (24, 90)])
def test_a_terminal(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar appears also on a terminal that says that it has no columns and no rows."""
    import fcntl
    import struct
    import termios

    control, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        bar = Bar(4, " utterances")
        bar.advance(2, "two of them")
        bar.say("a line")
        bar.close()
        bar.say("the end")
        stream.flush()
        data = b""
        while b"the end\r\n" not in data:
            data += os.read(control, 1 << 16)
        shown = data.decode()
    os.close(control)

    assert bar.is_shown
    assert "| 2/4 [" in shown
    assert "two of them" in shown
    assert "\ra line\r\n" in shown
    assert shown.endswith("\rthe end\r\n")


def test_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no terminal is there are only the lines."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = Bar(4, " utterances")
    bar.advance(2)
    bar.say("a line")
    bar.close()

    assert not bar.is_shown
    assert sys.stderr.getvalue() == "a line\n"


@pytest.mark.skipif(os.name != "posix", reason="runs commands of POSIX")
def test_interrupted_command() -> None:
    """A command is ended when its reader is interrupted."""
    written = []

    def read() -> None:
        with readable("echo $$; exec sleep 20 |") as source:
            assert hasattr(source, "readline")
            written.append(source.readline())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()

    try:
        _, status = os.waitpid(int(written[0]), 0)
    except ChildProcessError:
        return  # it has ended: Python waits for it only a moment
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
