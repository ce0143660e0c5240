"""The folder of a run: small JSON files, each a value; the names that a run makes; the lock.

Networks and archives are not read or written here.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

import attrs
import cattrs
from nnet3_descriptors.files import write_atomically

from nnet3_training.errors import RecipeError
from nnet3_training.recipes.options import RecipeOptions

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

_CONVERTER = cattrs.Converter(detailed_validation=False)
"""Stops at the first error: a list of thousands would take all memory for theirs."""
_FORMAT = "nnet3.recipe"
_VERSION = 1
_OUTPUT = "output"


@attrs.frozen(kw_only=True)
class Figure:
    """The objective and accuracy at an output.

    Attributes:
        per_frame: The objective per frame.
        frames: The weight of the frames.
        accuracy: The share of frames whose best column is right; None where there are no classes.
        auxiliary: Terms beside the objective, such as the l2 term of a 'chain' model, per frame.
    """

    per_frame: float
    frames: float
    accuracy: float | None = None
    auxiliary: float = 0.0


@attrs.frozen(kw_only=True)
class JobRecord:
    """The record of a job of an iteration.

    Attributes:
        archive: The number of its archive, from 0.
        frames: Number of output frames that it trained on.
        minibatches: Number of minibatches.
        seconds: The time it took, in seconds.
        figures: By output, the objective during training.
        clipped: By component, the share of minibatches on which its max-change was enforced; ""
            stands for the bound of all.
        skipped: Number of changes that were not finite and so not made.
        failure: Why training broke off, because it diverged; empty if it did not.
    """

    archive: int
    frames: float
    minibatches: int
    seconds: float
    figures: dict[str, Figure]
    clipped: dict[str, float]
    skipped: int
    failure: str = ""


@attrs.frozen(kw_only=True)
class IterationRecord:
    """The record of an iteration.

    Attributes:
        number: Number of the iteration, from 0; it made network `number` + 1.
        learning_rate: The effective rate.
        jobs: Its jobs.
        changes: By component with parameters, the norm of their change relative to their norm
            before; without those whose parameters were all zero before and are not any more.
        saturation: By nonlinearity, the share of saturated units.
        seconds: Its time in seconds.
        dropout: By pattern of names, the part of values that was dropped, if there is a schedule.
        diverged: By number of job, from 0, why the average leaves it out.
    """

    number: int
    learning_rate: float
    jobs: tuple[JobRecord, ...]
    changes: dict[str, float]
    saturation: dict[str, float]
    seconds: float
    dropout: dict[str, float] = attrs.field(factory=dict)
    diverged: dict[int, str] = attrs.field(factory=dict)

    @property
    def averaged(self) -> tuple[JobRecord, ...]:
        """The jobs whose networks were averaged."""
        return tuple(job for number, job in enumerate(self.jobs) if number not in self.diverged)


@attrs.frozen(kw_only=True)
class Diagnostics:
    """The objectives of a network in test mode.

    Attributes:
        train: By output, on training examples.
        held_out: By output, on held-out examples.
    """

    train: dict[str, Figure]
    held_out: dict[str, Figure]


@attrs.frozen(kw_only=True)
class FinalRecord:
    """The record of a run's end.

    Attributes:
        num_models: Number of averaged models, the last ones of the run.
        objectives: By number of models, the objective by which the number was chosen.
        diagnostics: The objectives of the final network.
    """

    num_models: int
    objectives: dict[int, float]
    diagnostics: Diagnostics


@attrs.frozen(kw_only=True)
class ArchivesRecord:
    """The examples of a run.

    Attributes:
        frames: Frames of the output in each archive.
        examples: Examples in each archive.
        train_examples: Number of training examples to measure on.
        held_out_examples: Number of held-out examples to measure on.
        utterances: Number of utterances with examples.
        too_short: Number of utterances that are shorter than an example.
    """

    frames: tuple[int, ...]
    examples: tuple[int, ...]
    train_examples: int
    held_out_examples: int
    utterances: int
    too_short: int


@attrs.frozen(kw_only=True)
class RunRecord:
    """The content of recipe.json.

    Attributes:
        options: The options of the run.
        format: Marks the file as one of a run.
        version: Version of the format.
    """

    options: RecipeOptions
    format: str = _FORMAT
    version: int = _VERSION


def write_record(record: attrs.AttrsInstance, path: str | os.PathLike[str]) -> None:
    """Writes a record; if that fails, the old file stays.

    Raises:
        FileError: it cannot be written.
    """
    text = json.dumps(cattrs.unstructure(record), indent=1)
    write_atomically(path, [f"{text}\n".encode()])


def read_record(kind: type[T], path: Path) -> T:
    """Reads a record.

    Raises:
        RecipeError: the file cannot be read, or is not a record of this kind.
    """
    try:
        return _CONVERTER.structure(json.loads(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise RecipeError(f"{path}: cannot read the file: {error.strerror}") from error
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RecipeError(
            f"{path}: this is no {kind.__name__} of a training run: {reason}"
        ) from error


def read_run_record(path: Path) -> RunRecord:
    """Reads recipe.json.

    Raises:
        RecipeError: the file cannot be read, is something else, or is of a later version.
    """
    record = read_record(RunRecord, path)
    if (record.format, record.version) != (_FORMAT, _VERSION):
        raise RecipeError(
            f"{path}: expected format {_FORMAT} of version {_VERSION}, found {record.format!r} of "
            f"version {record.version}"
        )
    return record


def diverged_jobs(jobs: Sequence[JobRecord], max_difference: float) -> dict[int, str]:
    """The jobs of an iteration that diverged, with the reason.

    The objectives at 'output' are compared; at every output, if none has that name.

    Args:
        jobs: All jobs of the iteration.
        max_difference: The objective per frame of a job, with its auxiliary terms, may be below
            that of the best job by this much.
    """
    found = {number: job.failure for number, job in enumerate(jobs) if job.failure}
    sound = {number: job.figures for number, job in enumerate(jobs) if number not in found}
    outputs = sorted({name for figures in sound.values() for name in figures})
    for output in [_OUTPUT] if _OUTPUT in outputs else outputs:
        values = {
            number: _value(figures[output])
            for number, figures in sound.items()
            if output in figures and figures[output].frames
        }
        best = max(values.values(), default=0.0)
        for number, value in values.items():
            if best - value > max_difference or not math.isfinite(value):
                found.setdefault(
                    number,
                    f"the objective at '{output}' is {value:.6g} per frame, that of the best job "
                    f"{best:.6g}: more than {max_difference:g} below",
                )
    return dict(sorted(found.items()))


def _value(figure: Figure) -> float:
    value = figure.per_frame + figure.auxiliary
    return -math.inf if math.isnan(value) else value


RECIPE, DEN_FST = "recipe.json", "den.fst"

_LOCK = "run.lock"

_WRITTEN = ("final.mdl", "final.raw", "final.json", DEN_FST, "archives", "jobs", "diagnostics",
            "iterations", "models")  # fmt: skip
"""What a run, or a tool that makes one, writes in its folder, beside its description and lock."""

_NETWORK = re.compile(r"([1-9][0-9]*)\.raw")
"""The name of a network that training has made."""

_OF_JOB = re.compile(r"[0-9]+\.[0-9]+\.(raw|json)|\.[0-9]+\.[0-9]+\.(raw|json)\..*\.nnet3-tmp")
"""The name of a file of a job, or of the temporary file that a worker left which was killed."""


def network(folder: Path, number: int) -> Path:
    """The path of network `number`, from 0."""
    return folder / "models" / f"{number}.raw"


def job_network(folder: Path, iteration: int, job: int) -> Path:
    """The path of the network of a job of an iteration; its record lies beside it."""
    return folder / "jobs" / f"{iteration}.{job}.raw"


def diagnostics(folder: Path, number: int) -> Path:
    """The path of the objectives of network `number`."""
    return folder / "diagnostics" / f"{number}.json"


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
