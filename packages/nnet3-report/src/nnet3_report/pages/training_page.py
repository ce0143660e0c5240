"""The page about a training run: its objectives, and the changes by each iteration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from nnet3_training.recipes import Figure, IterationRecord, TrainingRun

from nnet3_report.curves import curves_svg
from nnet3_report.pages.rendering import rendered

JOBS = "Jobs"
"""The title of the curve of the number of jobs."""

MOST_TICKS = 8
"""The most numbers below a curve."""

MOST_COLUMNS = 25
"""The most iterations in a table; longer runs leave some out."""

Array = npt.NDArray[np.float64]


class Table(NamedTuple):
    """Numbers by component and iteration.

    Attributes:
        title: The meaning of the numbers.
        note: A hint for reading them.
        largest: The number from which on a cell has its colour in full.
        rows: For each component, a number for each iteration; None where it is missing.
    """

    title: str
    note: str
    largest: float
    rows: dict[str, list[float | None]]

    @property
    def is_zero(self) -> bool:
        """Whether all numbers are 0."""
        return not any(number for numbers in self.rows.values() for number in numbers)


def training_page(name: str, run: TrainingRun) -> str:
    """Describes a run, finished or not.

    Args:
        name: The name of the run on the page.
        run: The run; without an iteration, the page has no curves.

    Returns:
        An HTML document; it needs no other file.
    """
    jobs = [job for record in run.iterations for job in record.jobs]
    seconds = sum(record.seconds for record in run.iterations)
    frames = sum(job.frames for job in jobs)
    last = max(run.diagnostics, default=0)
    shown = [run.iterations[number] for number in _chosen(len(run.iterations), MOST_COLUMNS)]
    return rendered(
        "training_page.html",
        name=name,
        run=run,
        options={_option(run, name): value for name, value in _options(run).items()},
        num_iterations=len(run.schedule),
        frames=frames,
        seconds=seconds,
        speed=frames / seconds if seconds else 0.0,
        skipped=sum(job.skipped for job in jobs),
        diverged=[record for record in run.iterations if record.diverged],
        reached=run.final.diagnostics if run.final else run.diagnostics.get(last),
        drawings=list(_drawings(run)),
        columns=[_iteration(record) for record in shown],
        tables=list(_tables(shown, _names([record.changes for record in run.iterations]))),
    )


def _options(run: TrainingRun) -> dict[str, object]:
    """The options of a run, those of fine-tuning if it is one."""
    left_out = () if run.options.fine_tuning else ("fine_tuning", "freeze")
    return {name: value for name, value in run.options.values.items() if name not in left_out}


def _option(run: TrainingRun, name: str) -> str:
    """An option as the command line has it; as Python has it, if the command line lacks it."""
    is_switch = isinstance(getattr(run.options.chain, name, None), bool)
    has_option = not is_switch and name != "fine_tuning"
    return f"--{name.replace('_', '-')}" if has_option else name


# ---- curves ----


def _drawings(run: TrainingRun) -> list[tuple[str, str]]:
    """Titles and SVG elements of the curves."""
    if not run.iterations:
        return []
    outputs = sorted({name for each in run.diagnostics.values() for name in each.held_out})
    drawings = []
    for output in outputs:
        drawings.append((f"Objective of {output}, per frame", objectives(run, output)))
        shares = _diagnosed(run, output, lambda figure: figure.accuracy)
        if np.isfinite(shares["held out"][1]).any():
            title = f"Accuracy at {output}: share of frames that are right"
            drawings.append((title, _drawn(title, shares)))
    records = run.iterations
    for title, value in (
        ("Effective learning rate", lambda record: record.learning_rate),
        ("Seconds of an iteration", lambda record: record.seconds),
        ("Frames per second", _frames_per_second),
        (JOBS, lambda record: float(len(record.jobs))),
    ):
        values = {_iteration(record): value(record) for record in records}
        if title != JOBS or len({*values.values()}) > 1:
            drawings.append((title, _drawn(title, {"": _series(values)}, y_start=0.0)))
    dropout = {
        pattern: _series(
            {_iteration(each): each.dropout[pattern] for each in records if pattern in each.dropout}
        )
        for pattern in dict.fromkeys(pattern for each in records for pattern in each.dropout)
    }
    if dropout:
        title = "Part of values that dropout drops"
        drawings.append((title, _drawn(title, dropout, y_start=0.0)))
    return drawings


def _iteration(record: IterationRecord) -> int:
    """The number of an iteration on the page: the first one is 1, and network 1 its result."""
    return record.number + 1


def _frames_per_second(record: IterationRecord) -> float:
    frames = sum(job.frames for job in record.jobs)
    return frames / record.seconds if record.seconds else math.nan


def objectives(run: TrainingRun, output: str) -> str:
    """Draws the objectives of the diagnostics, and of the jobs while they trained.

    The objectives of the untrained network, and of jobs that diverged, are left out: they would
    flatten all other curves.
    """
    curves = _diagnosed(run, output, lambda figure: figure.per_frame)
    curves = {name: (xs[xs > 0], ys[xs > 0]) for name, (xs, ys) in curves.items()}
    while_trained = {}
    for record in run.iterations:
        found = [job.figures[output] for job in record.averaged if output in job.figures]
        weight = sum(figure.frames for figure in found)
        if weight and record.number:
            total = sum(figure.per_frame * figure.frames for figure in found)
            while_trained[_iteration(record)] = total / weight
    title = f"Objective of {output}, per frame"
    return _drawn(title, {"in training": _series(while_trained), **curves})


def _diagnosed(
    run: TrainingRun, output: str, value: Callable[[Figure], float | None]
) -> dict[str, tuple[Array, Array]]:
    curves = {}
    for name, attribute in (("trained on", "train"), ("held out", "held_out")):
        figures: Mapping[int, Figure | None] = {
            number: getattr(each, attribute).get(output) for number, each in run.diagnostics.items()
        }
        found = {number: value(figure) for number, figure in figures.items() if figure}
        curves[name] = _series({n: math.nan if y is None else y for n, y in found.items()})
    return curves


def _series(values: Mapping[int, float]) -> tuple[Array, Array]:
    return np.array([*values], dtype=np.float64), np.array([*values.values()], dtype=np.float64)


def _drawn(
    title: str, curves: Mapping[str, tuple[Array, Array]], *, y_start: float | None = None
) -> str:
    numbers = np.concatenate([np.zeros(0), *(xs for xs, _ in curves.values())])
    return curves_svg(
        curves,
        title=title,
        x_title="iteration",
        x_ticks=[(x, f"{x:g}") for x in round_iterations(numbers)],
        y_text="{:,.7g}".format,
        y_start=y_start,
        y_step=1.0 if title == JOBS else 0.0,
    )


def round_iterations(numbers: Array) -> list[int]:
    """Returns at most `MOST_TICKS` multiples of a round number, within the range of numbers."""
    if not len(numbers):
        return []
    first, last = int(numbers.min()), int(numbers.max())
    steps = (base * 10**power for power in itertools.count() for base in (1, 2, 5))
    for step in steps:
        begin, end = -(-first // step), last // step + 1
        if end - begin <= MOST_TICKS:
            return [step * each for each in range(begin, end)]
    raise AssertionError("some step is larger than the range")


def _chosen(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spaced, with the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(n) for n in np.linspace(0, count - 1, most).tolist()})


# ---- tables ----


def _tables(records: Sequence[IterationRecord], components: Sequence[str]) -> Iterator[Table]:
    for title, note, largest, values in (
        (
            "Relative change of parameters",
            "By how many per cent an iteration changed the parameters of each component: the "
            "2-norm of the change, relative to the 2-norm of the parameters before. A field is "
            "empty if these were all 0.",
            0.2,
            [record.changes for record in records],
        ),
        (
            "Clipped steps",
            "In how many per cent of the minibatches the change of a component was so large that "
            "max-change scaled it down, on average over jobs. The last line is the limit for all "
            "parameters together.",
            1.0,
            [_clipped(record, components) for record in records],
        ),
        (
            "Saturated units",
            "How many per cent of the units hardly learn, because their average derivative is "
            "nearly 0: of rectifiers, the units that are hardly ever positive.",
            0.5,
            [record.saturation for record in records],
        ),
    ):
        rows = {name: [each.get(name) for each in values] for name in _names(values)}
        if rows:
            yield Table(title, note, largest, rows)


def _clipped(record: IterationRecord, names: Sequence[str]) -> dict[str, float]:
    return {
        name or "all parameters": sum(job.clipped.get(name, 0.0) for job in record.jobs)
        / max(len(record.jobs), 1)
        for name in (*names, "")
    }


def _names(found: Sequence[Mapping[str, float]]) -> list[str]:
    """All names, in the order of the mapping that has most: others may lack some components."""
    fullest = max(found, key=len, default={})
    return list(dict.fromkeys(name for each in (fullest, *found) for name in each))
