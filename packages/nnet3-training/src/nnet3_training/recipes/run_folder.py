"""The folder of a run: the names that a run makes there, and the lock of the one that trains."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from nnet3_training.errors import RecipeError

if sys.platform != "win32":
    import fcntl

RECIPE, DEN_FST = "recipe.json", "den.fst"

_LOCK = "run.lock"

_WRITTEN = ("final.mdl", "final.raw", "final.json", DEN_FST, "archives", "jobs", "diagnostics",
            "iterations", "models")  # fmt: skip
"""What a run, or a tool that makes one, writes in its folder, beside its description and lock."""

_NETWORK = re.compile(r"([1-9][0-9]*)\.raw")
"""The name of a network that training has made."""

_OF_JOB = re.compile(r"[0-9]+\.[0-9]+\.(raw|json)|\.[0-9]+\.[0-9]+\.(raw|json)\..*\.nnet3-tmp")
"""The name of a file of a job, or of the temporary file that a worker left which was killed."""


def check_free(folder: Path) -> None:
    """Raises an error if a new run would write over what others have in a folder."""
    models = {path.name for path in (folder / "models").glob("*") if path.name[0] != "."}
    left = {(): ("models",), ("0.raw",): ("models", DEN_FST)}.get(tuple(models), ())
    for name in _WRITTEN:
        if (folder / name).exists() and name not in left:  # by a run that was interrupted at once
            raise RecipeError(
                f"{folder}: expected a new folder, or one with a run, found '{name}' and no "
                f"{RECIPE}; a run would write over it: give another folder"
            )


def writes(folder: Path, path: Path) -> bool:
    """Whether a run in a folder writes or removes a file with this path."""
    folder, path = folder.resolve(), path.resolve()
    names = path.relative_to(folder).parts[:1] if path.is_relative_to(folder) else ()
    return any(name in names for name in (RECIPE, _LOCK, *_WRITTEN))


def tidy(folder: Path, needed: int) -> None:
    """Removes the files of jobs, and networks before network `needed`, without network 0."""
    for path in (folder / "jobs").iterdir():
        if _OF_JOB.fullmatch(path.name):
            path.unlink()
    for path in (folder / "models").iterdir():
        made = _NETWORK.fullmatch(path.name)
        if made and int(made[1]) < needed:
            path.unlink()


@contextlib.contextmanager
def only_trainer(folder: Path) -> Iterator[None]:
    """A context of which a folder has one at a time, in all processes.

    The system releases the lock with the process. Where it has none (on Windows, and in some file
    systems of networks), and where nobody may write, nothing is locked. The folder is made, and
    removed if nothing has come into it.

    Raises:
        RecipeError: another process trains in the folder.
    """
    folder = folder.absolute()  # whoever listens to the run may go to another folder
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    file = None
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        file = _lock(folder / _LOCK)
    try:
        yield
    finally:
        if file is not None:
            (folder / _LOCK).unlink(missing_ok=True)
            file.close()
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _lock(path: Path) -> IO[str] | None:
    """Opens and locks a file that says which process has locked it; None on Windows.

    Raises:
        RecipeError: another process has locked it.
        OSError: it cannot be opened, or the file system has no locks.
    """
    while sys.platform != "win32":
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                found = file.read() or "another process"
            raise RecipeError(
                f"{path.parent}: expected a folder in which nobody else trains, found {found} at "
                "work there; wait for its end, or give another folder"
            ) from None
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"process {os.getpid()} of '{platform.node()}'")
                file.flush()
                return file
        file.close()  # between the two steps, who had locked it removed it
    return None
