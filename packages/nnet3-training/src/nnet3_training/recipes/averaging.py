"""The jobs whose average is the next network: all that did not diverge.

A job diverged if its training broke off, or if its objective is far below that of the best job.
Kaldi's scripts choose by the same difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3_training.recipes.records import Figure, JobRecord

_OUTPUT = "output"


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
