"""The limit on the threads of the BLAS library holds for all threads of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from nnet3_runtime_cuda.cpu import threads
from nnet3_runtime_cuda.cpu.threads import ThreadLimit
from threadpoolctl import LibController, threadpool_info, threadpool_limits


def blas_threads() -> set[int]:
    """The numbers of threads that the BLAS libraries of this process may use now."""
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def in_a_thread(work: Callable[[], None]) -> None:
    """Does some work in a separate thread, which ends with it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_smallest_wish_is_in_force() -> None:
    """Of overlapping limits the smallest holds, in all threads; then the previous number does."""
    before, limit, seen = blas_threads(), ThreadLimit(), []

    with limit.at_most(3):
        assert blas_threads() == {3}
        first = limit.at_most(1)
        first.__enter__()
        assert blas_threads() == {1}
        with limit.at_most(2), limit.at_most(None):
            assert blas_threads() == {1}
            in_a_thread(lambda: seen.append(blas_threads()))
        first.__exit__(None, None, None)
        assert blas_threads() == {3}

    assert seen == [{1}]
    assert blas_threads() == before


def test_every_thread_sets_the_limit() -> None:
    """A limit that a second thread sets is in force, after the first thread has set one."""
    before = blas_threads()
    limit, seen = ThreadLimit(), []

    def work() -> None:
        with limit.at_most(2):
            seen.append(blas_threads())
        seen.append(blas_threads())

    with limit.at_most(3):
        in_a_thread(work)
    in_a_thread(work)

    assert seen == [{2}, {3}, {2}, before]
    assert blas_threads() == before


def test_the_last_to_leave_may_be_another_thread() -> None:
    """If a later thread leaves last, it restores the number from before both."""
    before = blas_threads()
    limit = ThreadLimit()
    entered, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        with limit.at_most(2):
            entered.set()
            may_leave.wait()

    thread = threading.Thread(target=work)
    with limit.at_most(3):
        thread.start()
        entered.wait()
    meanwhile = blas_threads()
    may_leave.set()
    thread.join()

    assert meanwhile == {2}
    assert blas_threads() == before


def test_beside_a_limit_of_the_user() -> None:
    """Within a limit that a user's thread has set, ours holds, and then the user's again."""
    before = blas_threads()
    limit, seen = ThreadLimit(), []

    def work() -> None:
        seen.append(blas_threads())
        with limit.at_most(1):
            seen.append(blas_threads())
        seen.append(blas_threads())

    with threadpool_limits(3, user_api="blas"):
        work()
        in_a_thread(work)

    # MKL's limits of users hold for their threads alone.
    assert seen[:3] == [{3}, {1}, {3}]
    assert seen[4] == {1}
    assert seen[3] == seen[5]
    assert 3 in seen[3]
    assert blas_threads() == before


def test_ctrl_c_while_a_limit_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, the library has its first setting again, and later limits hold."""
    before = blas_threads()
    limit, really_set, calls = ThreadLimit(), threads._set, []

    def set_and_be_interrupted(library: LibController, number: int) -> None:
        really_set(library, number)
        calls.append(number)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(threads, "_set", set_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt), limit.at_most(1):
        pass

    assert blas_threads() == before
    with limit.at_most(3):
        assert blas_threads() == {3}
    assert blas_threads() == before
