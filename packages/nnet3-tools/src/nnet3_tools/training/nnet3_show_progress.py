"""nnet3-show-progress: prints how the parameters of two networks differ, and the effect of that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click
import nnet3_descriptors
import nnet3_training

from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import (
    KaldiCommand,
    boolean_option,
    chosen_device,
    gpu_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    import numpy as np
    from nnet3_descriptors import Nnet

NAME = "nnet3-show-progress"


def _say(line: str) -> None:
    log(NAME, line)


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("old_in", metavar="OLD-NNET-IN")
@click.argument("new_in", metavar="NEW-NNET-IN")
@click.argument("egs_in", metavar="[EGS-RSPECIFIER]", default="")
@click.option(
    "--num-segments",
    type=click.IntRange(min=1),
    default=1,
    help="Number of networks between the two at which gradients are computed.",
)
@boolean_option("--compute-accuracy", default=True, help="Print the accuracy, too.")
@boolean_option("--compute-per-dim-accuracy", help="Print the accuracy of each class, too.")
@gpu_option()
def command(
    old_in: str,
    new_in: str,
    egs_in: str,
    num_segments: int,
    compute_accuracy: bool,
    compute_per_dim_accuracy: bool,
    use_gpu: str,
) -> None:
    """Print how the parameters of two networks differ, by component.

    With examples, also print how the change of each component affects the objective: the change
    times the gradient at some points between the networks.
    """
    with readable(old_in) as source:
        old = nnet3_descriptors.read_nnet(source)
    with readable(new_in) as source:
        new = nnet3_descriptors.read_nnet(source)
    if old.num_parameters != new.num_parameters:
        warn(NAME, "Parameter-dim mismatch, cannot show progress.")
        return
    if egs_in:
        _say_objectives(
            old,
            new,
            egs_in,
            num_segments,
            with_accuracy=compute_accuracy,
            per_column=compute_per_dim_accuracy,
            device=chosen_device(use_gpu),
        )
    _say_parameters(old, new)


def _say_objectives(
    old: Nnet,
    new: Nnet,
    egs_in: str,
    num_segments: int,
    *,
    with_accuracy: bool,
    per_column: bool,
    device: str,
) -> None:
    import numpy as np
    from nnet3_descriptors.editing import weighted_sum

    from nnet3_tools.egs.forms import form_for
    from nnet3_tools.training.diagnostics import by_component, dot_products, say_evaluation

    examples = [entry.value for entry in form_for(new).entries(egs_in)]
    if not examples:
        raise click.ClickException(f"'{egs_in}' has no examples")
    difference = nnet3_descriptors.vectorize(new).astype(np.float64) - nnet3_descriptors.vectorize(
        old
    )
    changes = np.zeros(0)
    for segment in range(num_segments):
        middle = (segment + 0.5) / num_segments
        evaluator = nnet3_training.Evaluator(
            weighted_sum([new, old], [middle, 1.0 - middle]), device=device, gradient=True
        )
        for example in examples:
            evaluator.add(example)
        if "output" not in evaluator.objectives:
            raise click.ClickException(f"the examples of '{egs_in}' have no output 'output'")
        if not with_accuracy:
            evaluator.accuracies.clear()
        say_evaluation(evaluator, new, _say, per_column=per_column)
        total = evaluator.objectives["output"]
        _say(f"At position {middle:.6g}, objf per frame is {total.per_frame:.6g}")
        found = dot_products(new, evaluator.gradient, difference) / (total.weight * num_segments)
        changes = changes + found if changes.size else found
    _say(f"Total objf change per component is {by_component(old, changes)}")


def _say_parameters(old: Nnet, new: Nnet) -> None:
    import numpy as np

    from nnet3_tools.training.diagnostics import by_component

    before, after = (nnet3_descriptors.vectorize(nnet).astype(np.float64) for nnet in (old, new))
    norms = partial(_norms, old)
    changed, size = norms(after - before), norms(before)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = changed / size
    _say(f"Parameter differences per layer are {by_component(old, changed)}")
    _say(f"Norms of parameter matrices from <new-nnet-in> are {by_component(new, norms(after))}")
    _say(f"Relative parameter differences per layer are {by_component(old, relative)}")


def _norms(
    nnet: Nnet, vector: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    import numpy as np

    from nnet3_tools.training.diagnostics import dot_products

    return np.sqrt(dot_products(nnet, vector, vector))


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
